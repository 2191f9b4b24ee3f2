package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// recalling is hosts over one store on which reads are round trips. The readers open a repository
// from memory after the writer has changed it.
type recalling struct {
	t       *testing.T
	keys    kv.Store
	files   file.Store
	writer  *engine.Host
	witness *engine.Host   // has opened nothing before
	readers []*engine.Host // have opened "repo" before the change, one for each operation
	old     object.ID      // tip of "repo" before the change
}

func newRecalling(t *testing.T) *recalling {
	t.Helper()
	keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	open := func() *engine.Host {
		host := enginetest.OpenOver(t, keys, files, engine.Config{Objects: odb.Options{RemoteKeys: true}})
		t.Cleanup(func() { must(t, host.Close(context.Background())) })
		return host
	}
	w := &recalling{t: t, keys: keys, files: files, writer: open(), witness: open()}
	w.old = w.create("old")
	for range recallOperations {
		host := open()
		repo, err := host.Repository(t.Context(), enginetest.Org, "repo")
		must(t, err)
		_, err = readFile(t.Context(), repo)
		must(t, err)
		w.readers = append(w.readers, host)
	}
	return w
}

// reader returns the next reader.
func (w *recalling) reader() *engine.Host {
	next := w.readers[0]
	w.readers = w.readers[1:]
	return next
}

// tell does an operation on "repo", and tells what came of it.
func (w *recalling) tell(
	open func(ctx context.Context, org, name string) (*engine.Repository, error),
	do func(ctx context.Context, repo *engine.Repository, old object.ID) (string, error),
) string {
	w.t.Helper()
	repo, err := open(w.t.Context(), enginetest.Org, "repo")
	text := ""
	if err == nil {
		text, err = do(w.t.Context(), repo, w.old)
	}
	if err != nil {
		return err.Error()
	}
	return text + repo.Item().DefaultBranch + repo.Item().ID.String()
}

// create makes "repo" with one commit on the writer.
func (w *recalling) create(content string) object.ID {
	w.t.Helper()
	result, err := upload(enginetest.Create(w.t, w.writer, "repo"), acme, main, change{path: "file", content: content})
	must(w.t, err)
	return result.New
}

// change changes settings on the writer.
func (w *recalling) change(name string, to engine.Settings) {
	w.t.Helper()
	repo, err := w.writer.Repository(w.t.Context(), enginetest.Org, name)
	must(w.t, err)
	_, err = repo.ChangeSettings(w.t.Context(), acme, to)
	must(w.t, err)
}

func (w *recalling) commit(branch, content string) {
	w.t.Helper()
	repo, err := w.writer.Repository(w.t.Context(), enginetest.Org, "repo")
	must(w.t, err)
	target := engine.CommitTarget{Branch: branch}
	if branch != "main" {
		target.Base = "main"
	}
	_, err = upload(repo, acme, target, change{path: "file", content: content})
	must(w.t, err)
}

func (w *recalling) delete() {
	w.t.Helper()
	_, err := w.writer.DeleteRepository(w.t.Context(), acme, "repo")
	must(w.t, err)
}

// readFile returns the file on the default branch.
func readFile(ctx context.Context, repo *engine.Repository) (string, error) {
	f, err := repo.File(ctx, engine.FileRequest{Path: "file"})
	if err != nil {
		return "", err
	}
	var got strings.Builder
	o, err := f.Content(ctx)
	if err == nil {
		_, err = o.WriteTo(&got)
		err = errors.Join(err, o.Close())
	}
	return got.String(), errors.Join(err, f.Close())
}

// recallOperations tell what they find in one line. old is a commit of the repository before it was
// changed.
var recallOperations = []struct {
	name string
	do   func(ctx context.Context, repo *engine.Repository, old object.ID) (string, error)
}{
	{"File", func(ctx context.Context, repo *engine.Repository, _ object.ID) (string, error) {
		return readFile(ctx, repo)
	}},
	{"Files", func(ctx context.Context, repo *engine.Repository, _ object.ID) (string, error) {
		files, err := repo.Files(ctx, engine.FilesRequest{})
		if err != nil {
			return "", err
		}
		return files.Revision.Commit.String(), files.Close()
	}},
	{"Commits", func(ctx context.Context, repo *engine.Repository, _ object.ID) (text string, err error) {
		page, err := repo.Commits(ctx, engine.CommitsRequest{Limit: 10})
		if err != nil {
			return "", err
		}
		for c, err := range page.All(ctx) {
			if err != nil {
				return "", err
			}
			text += c.ID.String()
		}
		return text, page.Close()
	}},
	{"Commit", func(ctx context.Context, repo *engine.Repository, _ object.ID) (string, error) {
		c, err := repo.Commit(ctx, engine.CommitName{})
		return c.ID.String(), err
	}},
	{"Branches", func(ctx context.Context, repo *engine.Repository, _ object.ID) (string, error) {
		page, err := repo.Branches(ctx, refs.Main, "", 10)
		return fmt.Sprint(page.Items), err
	}},
	{"Tags", func(ctx context.Context, repo *engine.Repository, _ object.ID) (string, error) {
		page, err := repo.Tags(ctx, refs.Main, "", 10)
		return fmt.Sprint(page.Items), err
	}},
	{"Advertise", func(ctx context.Context, repo *engine.Repository, _ object.ID) (text string, err error) {
		shown, err := repo.Advertise(ctx, refs.Main)
		if err != nil {
			return "", err
		}
		text = fmt.Sprint(shown.HeadName(), shown.HeadID())
		for ref, err := range shown.All(ctx, "") {
			if err != nil {
				return "", err
			}
			text += fmt.Sprint(ref.Name, ref.ID)
		}
		return text, shown.Close()
	}},
	{"Fetch", func(ctx context.Context, repo *engine.Repository, old object.ID) (string, error) {
		var out bytes.Buffer
		fetch, err := repo.Fetch(ctx, engine.FetchRequest{Wants: []object.ID{old}})
		if err != nil {
			return "", err
		}
		defer fetch.Close()
		err = fetch.Send(ctx, &out, engine.SendOptions{})
		return fmt.Sprintf("%x", out.Bytes()), err
	}},
	{"Objects", func(ctx context.Context, repo *engine.Repository, old object.ID) (string, error) {
		view, err := repo.Objects(ctx)
		if err != nil {
			return "", err
		}
		has, err := view.Has(ctx, old)
		return fmt.Sprint(has), errors.Join(err, view.Close())
	}},
	{"NewUpload", func(ctx context.Context, repo *engine.Repository, _ object.ID) (string, error) {
		actor := acme
		actor.DryRun = true
		result, err := uploadWhile(ctx, repo, actor, main, change{path: "other", content: "other"})
		return fmt.Sprint(result.Old, result.Tree), err
	}},
	{"Receive", func(ctx context.Context, repo *engine.Repository, old object.ID) (string, error) {
		actor := acme
		actor.DryRun = true
		push, err := repo.Receive(ctx, actor, engine.PushRequest{
			Commands: []engine.Command{{Name: "refs/heads/pushed", New: old}},
		})
		if err != nil {
			return "", err
		}
		defer push.Close()
		result, err := push.Finish(ctx, nil)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(result.Commands[0].Err), nil
	}},
}

// Another server has changed what a name leads to since a repository was opened last: each
// operation does what it does on a repository that was just read.
func TestRecall(t *testing.T) {
	t.Parallel()
	for name, changed := range map[string]func(w *recalling){
		"nothing":  func(*recalling) {},
		"a commit": func(w *recalling) { w.commit("main", "new") },
		"a branch": func(w *recalling) { w.commit("new", "new") },
		"default branch": func(w *recalling) {
			w.commit("new", "new")
			w.change("repo", engine.Settings{DefaultBranch: "new"})
		},
		"renamed":        func(w *recalling) { w.change("repo", engine.Settings{Name: "gone"}) },
		"deleted":        func(w *recalling) { w.delete() },
		"deleted, anew":  func(w *recalling) { w.delete(); w.create("anew") },
		"another's name": func(w *recalling) { w.change("repo", engine.Settings{Name: "gone"}); w.create("another") },
		"away and back": func(w *recalling) {
			w.change("repo", engine.Settings{Name: "gone"})
			w.change("gone", engine.Settings{Name: "repo"})
		},
		"deleted, undone": func(w *recalling) {
			w.delete()
			_, err := w.writer.Undelete(w.t.Context(), acme, engine.UndeleteRequest{Name: "repo"})
			must(w.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRecalling(t)
			changed(w)
			for _, operation := range recallOperations {
				read, recalled := w.tell(w.witness.Repository, operation.do), w.tell(w.reader().Recall, operation.do)
				if read != recalled {
					t.Errorf("%s: read: %s\nrecalled: %s", operation.name, read, recalled)
				}
			}
		})
	}
}
