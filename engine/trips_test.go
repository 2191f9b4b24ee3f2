package engine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/kv/trips"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// TestTrips holds operations to a number of round trips to the key-value store: a read that is new,
// or one in a loop, fails here.
func TestTrips(t *testing.T) {
	t.Parallel()
	w := newTripWorld(t)
	for _, operation := range []struct {
		name   string
		budget int
		do     func(ctx context.Context) error
	}{
		{"open a repository", 1, w.open},
		{"ls-refs after a change", 2, w.advertise},
		{"ls-refs", 1, w.advertise},
		{"clone of a hot repository", 1, w.clone("hot", engine.FetchRequest{})},
		{"the same again", 1, w.clone("hot", engine.FetchRequest{})},
		{"depth-1 clone of it", 1, w.clone("hot", engine.FetchRequest{Depth: 1})},
		{"fetch of a new commit", 1, w.clone("hot", engine.FetchRequest{Haves: w.commits[len(w.commits)-2 : len(w.commits)-1]})},
		{"clone of a segment", 3, w.clone("packed", engine.FetchRequest{})},
		{"commit of a file", 2, w.commit(nil, "a/b/c/file")},
		{"commit with an idempotency key", 2, w.commit(newTripReceipt("first"), "a/b/c/file")},
		{"the same again, which is a replay", 1, w.commit(newTripReceipt("first"), "a/b/c/file")},
		{"commit of 10 files in 10 folders", 2, w.commit(nil, w.paths(10)...)},
		{"first commit of 200 files", 5, w.firstCommit},
		{"push of a commit", 4, w.push(1)},
		{"push of 5 commits", 2, w.push(5)},
		{"create a repository", 2, w.create},
		{"read a file", 1, w.readFile},
		{"list 20 commits", 1, w.listCommits},
		{"list branches", 3, w.listBranches},
		{"list 100 repositories", 2, w.listRepositories("")},
		{"search 100 repositories", 4, w.listRepositories("list-1")},
		{"create a branch", 5, w.createBranch},
		{"create a tag", 6, w.createTag},
		{"check everything", 2171, w.fsck},
		{"maintenance", 1452, w.maintain},
		{"fork a repository", 9, w.fork},
	} {
		ctx, log := trips.Record(t.Context())
		if err := operation.do(ctx); err != nil {
			t.Fatalf("%s: %v", operation.name, err)
		}
		t.Logf("%s: %d trips", operation.name, log.Count())
		if log.Count() > operation.budget {
			t.Errorf("%s: %d trips, at most %d:\n%.4000s", operation.name, log.Count(), operation.budget, log)
		}
	}
}

// tripWorld is a host over a store that counts, with a repository of a few hundred hot objects and
// one of a segment.
type tripWorld struct {
	t       *testing.T
	host    *engine.Host
	commits []object.ID // of the repository "hot"
	git     *oracle.Repository
	steps   []string // commits of git, the newest first
	tip     string   // the pushed one
}

func newTripWorld(t *testing.T) *tripWorld {
	t.Helper()
	w := &tripWorld{t: t}
	config := engine.Config{
		Objects:   odb.Options{RemoteKeys: true},
		FollowOrg: func(context.Context, string, []byte) error { return nil },
	}
	w.host = enginetest.OpenBehind(t, config,
		func(keys kv.Store) kv.Store { return trips.Over(keys, 0) })
	w.commits = seedHistory(t, enginetest.Create(t, w.host, "hot"), 100)
	w.git = odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 1, CommitCount: 600}).Repository
	w.steps = strings.Fields(w.git.Git("rev-list", "--first-parent", "b599"))
	w.tip = w.steps[8]
	enginetest.Push(t, enginetest.Create(t, w.host, "packed"), w.pack(w.tip),
		engine.Command{Name: "refs/heads/main", New: parseID(t, w.tip)})
	for i := range 100 {
		enginetest.Create(t, w.host, fmt.Sprintf("list-%d", i))
	}
	return w
}

// pack returns a pack of everything that revisions reach.
func (w *tripWorld) pack(revisions ...string) []byte {
	w.t.Helper()
	var input bytes.Buffer
	for _, revision := range revisions {
		fmt.Fprintln(&input, revision)
	}
	return w.git.Input(input.Bytes(), "pack-objects", "--quiet", "--revs", "--stdout", "--thin", "--delta-base-offset")
}

func newTripReceipt(key string) *refs.Receipt {
	return &refs.Receipt{
		Key:     refs.ReceiptKey{Org: enginetest.Org, Repo: "hot", Endpoint: "commit", Key: key},
		Request: sha256.Sum256([]byte(key)),
	}
}

func (w *tripWorld) paths(count int) (paths []string) {
	for i := range count {
		paths = append(paths, fmt.Sprintf("folder-%d/sub/file", i))
	}
	return paths
}

func (w *tripWorld) open(ctx context.Context) error {
	_, err := w.host.Repository(ctx, enginetest.Org, "hot")
	return err
}

func (w *tripWorld) advertise(ctx context.Context) error {
	repo, err := w.host.Recall(ctx, enginetest.Org, "hot")
	if err != nil {
		return err
	}
	advertised, err := repo.Advertise(ctx, refs.Main)
	if err != nil {
		return err
	}
	defer advertised.Close()
	for _, err := range advertised.All(ctx, "") {
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *tripWorld) clone(name string, request engine.FetchRequest) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		repo, err := w.host.Recall(ctx, enginetest.Org, name)
		if err != nil {
			return err
		}
		request.WantRefs, request.OFSDelta = []string{"refs/heads/main"}, true
		_, err = cloneWhile(ctx, repo, request, engine.SendOptions{})
		return err
	}
}

func (w *tripWorld) commit(receipt *refs.Receipt, paths ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		repo, err := w.host.Recall(ctx, enginetest.Org, "hot")
		if err != nil {
			return err
		}
		actor := acme
		actor.Receipt = receipt
		var changes []change
		for _, path := range paths {
			changes = append(changes, change{path: path, content: fmt.Sprintln(len(paths), receipt != nil)})
		}
		_, err = uploadWhile(ctx, repo, actor, main, changes...)
		return err
	}
}

func (w *tripWorld) firstCommit(ctx context.Context) error {
	repo := enginetest.Create(w.t, w.host, "first")
	var changes []change
	for i := range 200 {
		changes = append(changes, change{path: fmt.Sprintf("folder-%d/file-%d", i%20, i), content: fmt.Sprintln(i)})
	}
	_, err := uploadWhile(ctx, repo, acme, main, changes...)
	return err
}

// push pushes the next commits of git.
func (w *tripWorld) push(count int) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		old := w.tip
		at := 0
		for i, step := range w.steps {
			if step == old {
				at = i
			}
		}
		w.tip = w.steps[at-count]
		repo, err := w.host.Recall(ctx, enginetest.Org, "packed")
		if err != nil {
			return err
		}
		push, err := repo.Receive(ctx, acme, engine.PushRequest{
			Commands: []engine.Command{{Name: "refs/heads/main", Old: parseID(w.t, old), New: parseID(w.t, w.tip)}},
			Pack:     bytes.NewReader(w.pack("^"+old, w.tip)),
		})
		if err != nil {
			return err
		}
		defer push.Close()
		done, err := push.Finish(ctx, nil)
		if err != nil || done.Unpack != nil {
			return fmt.Errorf("push: %w, %w", err, done.Unpack)
		}
		return done.Commands[0].Err
	}
}

func (w *tripWorld) create(ctx context.Context) error {
	_, err := w.host.CreateRepository(ctx, acme, engine.CreateRequest{Name: "created"})
	return err
}

func (w *tripWorld) fork(ctx context.Context) error {
	_, err := w.host.CreateRepository(ctx, acme, engine.CreateRequest{Name: "forked", Base: &engine.Base{Name: "packed"}})
	return err
}

func (w *tripWorld) readFile(ctx context.Context) error {
	repo, err := w.host.Recall(ctx, enginetest.Org, "hot")
	if err != nil {
		return err
	}
	f, err := repo.File(ctx, engine.FileRequest{Ref: "main", Path: "a/b/c/file"})
	if err != nil {
		return err
	}
	_, err = f.Content(ctx)
	return errors.Join(err, f.Close())
}

func (w *tripWorld) listCommits(ctx context.Context) error {
	repo, err := w.host.Recall(ctx, enginetest.Org, "hot")
	if err != nil {
		return err
	}
	page, err := repo.Commits(ctx, engine.CommitsRequest{Limit: 20})
	if err != nil {
		return err
	}
	for _, err = range page.All(ctx) {
		if err != nil {
			break
		}
	}
	return errors.Join(err, page.Close())
}

func (w *tripWorld) listBranches(ctx context.Context) error {
	repo, err := w.host.Recall(ctx, enginetest.Org, "hot")
	if err != nil {
		return err
	}
	_, err = repo.Branches(ctx, refs.Main, "", 20)
	return err
}

func (w *tripWorld) createBranch(ctx context.Context) error {
	repo, err := w.host.Repository(ctx, enginetest.Org, "hot")
	if err != nil {
		return err
	}
	_, err = repo.CreateBranch(ctx, acme, engine.CreateBranchRequest{Branch: "new", Base: rev("main")})
	return err
}

func (w *tripWorld) createTag(ctx context.Context) error {
	repo, err := w.host.Repository(ctx, enginetest.Org, "hot")
	if err != nil {
		return err
	}
	_, err = repo.CreateTag(ctx, acme, refs.Main, "new", rev("main"))
	return err
}

// fsck checks the whole store: 104 repositories, of which each costs 20 trips and a few for every
// thousand rows.
func (w *tripWorld) fsck(ctx context.Context) error {
	for checked, err := range w.host.Fsck(ctx, engine.FsckOptions{}) {
		if err != nil {
			return err
		}
		if checked.Damaged() {
			return fmt.Errorf("%s: %q", checked.Name, checked.Problems())
		}
	}
	return nil
}

func (w *tripWorld) listRepositories(query string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.host.Repositories(ctx, enginetest.Org, engine.ListOptions{Query: query, Limit: 100})
		return err
	}
}

func (w *tripWorld) maintain(ctx context.Context) error {
	for done, err := range w.host.Maintain(ctx, engine.MaintainOptions{All: true}) {
		if err != nil || done.Err != nil {
			return fmt.Errorf("maintain: %w, %w", err, done.Err)
		}
	}
	return nil
}
