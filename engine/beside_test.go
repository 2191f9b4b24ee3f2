package engine_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// beside is a store in whose first batch something else comes first.
type beside struct {
	kv.Store
	first atomic.Pointer[func()]
}

func (s *beside) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	if first := s.first.Swap(nil); first != nil {
		(*first)()
	}
	return s.Store.Apply(ctx, batch)
}

// besideWrites are writes to "repo", whose main was at old and whose side is a commit above it.
var besideWrites = map[string]func(ctx context.Context, repo *engine.Repository, old, side object.ID) (string, error){
	"commit": func(ctx context.Context, repo *engine.Repository, _, _ object.ID) (string, error) {
		result, err := uploadWhile(ctx, repo, acme, main, change{path: "mine", content: "mine"})
		return "tree " + result.Tree.String(), err
	},
	"commit on the tip": func(ctx context.Context, repo *engine.Repository, old, _ object.ID) (string, error) {
		target := main
		target.Expected = &old
		result, err := uploadWhile(ctx, repo, acme, target, change{path: "mine", content: "mine"})
		return "tree " + result.Tree.String(), err
	},
	"push": func(ctx context.Context, repo *engine.Repository, old, side object.ID) (string, error) {
		push, err := repo.Receive(ctx, acme, engine.PushRequest{Commands: []engine.Command{
			{Name: "refs/heads/main", Old: old, New: side}, {Name: "refs/heads/pushed", New: old},
		}})
		if err != nil {
			return "", err
		}
		defer push.Close()
		result, err := push.Finish(ctx, nil)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(result.Commands[0].Err, result.Commands[1].Err), nil
	},
	"note": func(ctx context.Context, repo *engine.Repository, old, _ object.ID) (string, error) {
		_, err := repo.AddNote(ctx, acme, engine.NoteTarget{Ref: "refs/notes/commits", Object: rev(old.String())}, "mine", false)
		return "", err
	},
}

// besideWorld is a server that writes to "repo", beside one that changes it.
type besideWorld struct {
	*recalling
	here  *engine.Host
	store *beside
	side  object.ID
}

func newBesideWorld(t *testing.T) *besideWorld {
	t.Helper()
	w := &besideWorld{recalling: newRecalling(t)}
	w.commit("side", "side")
	w.store = &beside{Store: w.keys}
	w.here = enginetest.OpenOver(t, w.store, w.files, engine.Config{Objects: odb.Options{RemoteKeys: true}})
	t.Cleanup(func() { must(t, w.here.Close(context.Background())) })
	repo, err := w.here.Repository(t.Context(), enginetest.Org, "repo")
	must(t, err)
	_, err = readFile(t.Context(), repo) // it knows the pool now
	must(t, err)
	side, err := repo.Commit(t.Context(), rev("side"))
	must(t, err)
	w.side = side.ID
	return w
}

// ids are those of an answer, with a word before those of trees.
var ids = regexp.MustCompile(`(tree )?[0-9a-f]{40}`)

// write does a write and tells what came of it. The IDs of commits depend on the second in which a
// world was made, so it names them.
func (w *besideWorld) write(
	do func(ctx context.Context, repo *engine.Repository, old, side object.ID) (string, error),
) string {
	w.t.Helper()
	repo, err := w.here.Recall(w.t.Context(), enginetest.Org, "repo")
	text := ""
	if err == nil {
		text, err = do(w.t.Context(), repo, w.old, w.side)
	}
	return ids.ReplaceAllStringFunc(fmt.Sprint(text, err), func(id string) string {
		switch {
		case strings.HasPrefix(id, "tree "), id == (object.ID{}).String():
			return id
		case id == w.old.String():
			return "old"
		case id == w.side.String():
			return "side"
		default:
			return "a new commit"
		}
	})
}

// describe tells what "repo" has: for each branch the tree and the number of commits, and the note.
func (w *besideWorld) describe() (text string) {
	w.t.Helper()
	ctx := w.t.Context()
	repo, err := w.witness.Repository(ctx, enginetest.Org, "repo")
	if errors.Is(err, engine.ErrNotFound) {
		return "gone"
	}
	must(w.t, err)
	branches, err := repo.Branches(ctx, refs.Main, "", 100)
	must(w.t, err)
	view, err := repo.Objects(ctx)
	must(w.t, err)
	defer func() { must(w.t, view.Close()) }()
	for _, branch := range branches.Items {
		page, err := repo.Commits(ctx, engine.CommitsRequest{From: rev(branch.Name), Limit: 100})
		must(w.t, err)
		count := 0
		for _, err := range page.All(ctx) {
			must(w.t, err)
			count++
		}
		must(w.t, page.Close())
		tip, err := view.Graph(ctx, branch.Tip)
		must(w.t, err)
		text += fmt.Sprintln(branch.Name, tip.Tree, count)
	}
	note, err := repo.Note(ctx, engine.NoteTarget{Ref: "refs/notes/commits", Object: rev(w.old.String())})
	return text + fmt.Sprint(note.Text, err == nil)
}

// A server changes a repository between what a write on another one has read and its batch: the
// write ends as one that begins after the change, and finds nothing if its repository has gone.
func TestWritesBeside(t *testing.T) {
	t.Parallel()
	for change, changed := range map[string]func(w *besideWorld){
		"nothing":       func(*besideWorld) {},
		"a commit":      func(w *besideWorld) { w.commit("main", "new") },
		"another file":  func(w *besideWorld) { w.commit("side", "new") },
		"a branch":      func(w *besideWorld) { w.commit("pushed", "new") },
		"renamed":       func(w *besideWorld) { w.change("repo", engine.Settings{Name: "gone"}) },
		"deleted":       func(w *besideWorld) { w.delete() },
		"deleted, anew": func(w *besideWorld) { w.delete(); w.create("anew") },
		"default branch": func(w *besideWorld) {
			w.change("repo", engine.Settings{DefaultBranch: "side"})
		},
		"a note": func(w *besideWorld) {
			repo, err := w.writer.Repository(w.t.Context(), enginetest.Org, "repo")
			must(w.t, err)
			target := engine.NoteTarget{Ref: "refs/notes/commits", Object: rev(w.old.String())}
			_, err = repo.AddNote(w.t.Context(), acme, target, "theirs", false)
			must(w.t, err)
		},
		"maintenance": func(w *besideWorld) {
			for done, err := range w.writer.Maintain(w.t.Context(), engine.MaintainOptions{All: true}) {
				must(w.t, errors.Join(err, done.Err))
			}
		},
	} {
		for write, do := range besideWrites {
			t.Run(write+" beside "+change, func(t *testing.T) {
				t.Parallel()
				w, after := newBesideWorld(t), newBesideWorld(t)
				w.store.first.Store(new(func() { changed(w) }))
				got := w.write(do)
				if w.store.first.Load() != nil {
					t.Fatal("it has no batch")
				}
				changed(after)
				want := `repository "repo" not found`
				if !strings.HasPrefix(change, "deleted") {
					want = after.write(do)
				}
				if !strings.Contains(got, want) {
					t.Errorf("%s; after the change %s", got, want)
				}
				if got, want := w.describe(), after.describe(); got != want {
					t.Errorf("it has\n%s\nafter the change\n%s", got, want)
				}
			})
		}
	}
}
