package refs_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
	"packhorse/refs"
)

// openKV opens a key-value store in memory, which is closed with the test.
func openKV(tb testing.TB) kv.Store {
	tb.Helper()
	return openKVOn(tb, vfs.NewMem())
}

// openKVOn is openKV on a file system.
func openKVOn(tb testing.TB, fs vfs.FS) kv.Store {
	tb.Helper()
	store := odbtest.OpenKeys(tb, fs)
	tb.Cleanup(func() {
		if err := store.Close(); err != nil && !errors.Is(err, kv.ErrClosed) {
			tb.Error(err)
		}
	})
	return store
}

// openRepo opens a store in memory with one repository without refs, at sequence 1.
func openRepo(tb testing.TB) (*refs.Store, refs.RepoID) {
	tb.Helper()
	keys := openKV(tb)
	store := refs.Open(keys, refs.Options{})
	return store, createRepo(tb, keys, store)
}

func createRepo(tb testing.TB, keys kv.Store, store *refs.Store) refs.RepoID {
	tb.Helper()
	repo := refs.NewRepoID()
	batch := kv.NewBatch()
	if err := store.Create(batch, repo, refs.Change{Actor: "founder", Cause: "create"}); err != nil {
		tb.Fatal(err)
	}
	commit, err := keys.Apply(tb.Context(), batch)
	if err == nil {
		err = commit.Wait(tb.Context())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return repo
}

// id returns an object ID for n; 0 is the zero ID.
func id(n int) object.ID {
	if n == 0 {
		return object.ZeroID
	}
	return object.ID{0: 0xab, 16: byte(n >> 24), 17: byte(n >> 16), 18: byte(n >> 8), 19: byte(n)}
}

// set points refs to IDs in one transaction, zero deletes, and fails the test on any error.
func set(tb testing.TB, store *refs.Store, repo refs.RepoID, pairs ...any) refs.Result {
	tb.Helper()
	result, err := store.Update(tb.Context(), repo, refs.Change{Actor: "test"}, setter(pairs...))
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

// state returns the refs of a snapshot by name.
func state(tb testing.TB, snapshot *refs.Snapshot) map[string]object.ID {
	tb.Helper()
	got, last := map[string]object.ID{}, ""
	for ref, err := range snapshot.All(tb.Context(), "") {
		if err != nil {
			tb.Fatal(err)
		}
		if ref.Name <= last {
			tb.Fatalf("%q comes behind %q", ref.Name, last)
		}
		got[ref.Name], last = ref.ID, ref.Name
	}
	return got
}

func openSnapshot(tb testing.TB, store *refs.Store, repo refs.RepoID) *refs.Snapshot {
	tb.Helper()
	snapshot, err := store.Snapshot(tb.Context(), repo)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := snapshot.Close(); err != nil {
			tb.Error(err)
		}
	})
	return snapshot
}

func TestRepositoryLife(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{})
	if _, err := store.Head(t.Context(), refs.NewRepoID()); !errors.Is(err, refs.ErrRepositoryNotFound) {
		t.Fatalf("head of nothing: %v", err)
	}
	repo, other := createRepo(t, keys, store), createRepo(t, keys, store)
	set(t, store, repo, "refs/heads/main", 1)
	set(t, store, other, "refs/heads/main", 2)
	if head, err := store.Head(t.Context(), repo); err != nil || head != 2 {
		t.Fatalf("head %d, %v", head, err)
	}

	again := kv.NewBatch()
	if err := store.Create(again, repo, refs.Change{}); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Apply(t.Context(), again); !errors.Is(err, kv.ErrConflict) {
		t.Fatalf("created twice: %v", err)
	}

	old := openSnapshot(t, store, repo)
	result, err := store.Update(t.Context(), repo, refs.Change{}, drop)
	if err != nil || result.Sequence != 3 {
		t.Fatalf("drop: %+v, %v", result, err)
	}
	findNothing(t, store, old, repo)
	if got := state(t, openSnapshot(t, store, other)); got["refs/heads/main"] != id(2) {
		t.Errorf("the other repository: %v", got)
	}
	left := func() (count int) {
		for pair, err := range keys.Scan(t.Context(), kv.ScanOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if len(pair.Key) > 16 && slices.Equal(pair.Key[1:17], repo[:]) {
				count++
			}
		}
		return count
	}
	if left() == 0 {
		t.Error("nothing is left to be removed later")
	}
	for _, rows := range refs.Leftovers(repo) { // step by step
		b := kv.NewBatch()
		b.DeleteRange(rows.Start, rows.End)
		if _, err := keys.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		findNothing(t, store, old, repo)
		findNothing(t, refs.Open(keys, refs.Options{}), old, repo)
	}
	if count := left(); count > 0 {
		t.Errorf("%d rows are left behind", count)
	}
	if got := state(t, openSnapshot(t, store, other)); got["refs/heads/main"] != id(2) {
		t.Errorf("the other repository: %v", got)
	}
}

// findNothing looks for a repository that was dropped in every way. old is a snapshot from before.
func findNothing(t *testing.T, store *refs.Store, old *refs.Snapshot, repo refs.RepoID) {
	t.Helper()
	ctx := t.Context()
	for name, find := range map[string]func() error{
		"head":      func() error { _, err := store.Head(ctx, repo); return err },
		"snapshot":  func() error { _, err := store.Snapshot(ctx, repo); return err },
		"old":       func() error { _, err := old.Lookup(ctx, "refs/heads/main"); return err },
		"state":     func() error { _, err := store.State(ctx, repo); return err },
		"events":    func() error { _, err := store.Events(ctx, repo, 0, 10); return err },
		"positions": func() error { _, err := store.EventsBehind(ctx, repo, refs.JournalCursor{}, 10); return err },
		"await":     func() error { return store.Await(ctx, repo, 1) },
		"fsck":      func() error { _, err := store.Fsck(ctx, repo); return err },
		"trim":      func() error { _, err := store.TrimJournal(ctx, repo, time.Unix(0, 0)); return err },
		"update": func() error {
			_, err := store.Update(ctx, repo, refs.Change{}, setter("refs/heads/x", 1))
			return err
		},
	} {
		if err := find(); !errors.Is(err, refs.ErrRepositoryNotFound) {
			t.Errorf("%s of a dropped repository: %v", name, err)
		}
	}
}

func TestRepoID(t *testing.T) {
	t.Parallel()
	repo := refs.NewRepoID()
	parsed, err := refs.ParseRepoID(repo.String())
	if err != nil || parsed != repo {
		t.Fatalf("%s became %s, %v", repo, parsed, err)
	}
	if repo.IsZero() || !(refs.RepoID{}).IsZero() {
		t.Error("IsZero")
	}
	for _, text := range []string{
		"", "x", "{" + repo.String() + "}", "urn:uuid:" + repo.String(), "0190A5CE-0000-7000-8000-000000000000",
	} {
		if _, err := refs.ParseRepoID(text); !errors.Is(err, refs.ErrInvalidRepoID) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAwait(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	shared := refs.Options{Shared: true}
	here, there := refs.Open(keys, shared), refs.Open(keys, shared)
	repo := createRepo(t, keys, here)
	if err := here.Await(t.Context(), repo, 1); err != nil {
		t.Fatal(err)
	}
	for name, writer := range map[string]*refs.Store{"the same server": here, "another server": there} {
		head, err := here.Head(t.Context(), repo)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- here.Await(t.Context(), repo, head+2) }()
		set(t, writer, repo, "refs/heads/a", int(head))
		set(t, writer, repo, "refs/heads/b", int(head))
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := contextWithTimeout(t, time.Millisecond)
	defer cancel()
	if err := here.Await(ctx, repo, 1000); !errors.Is(err, ctx.Err()) {
		t.Errorf("without a writer: %v", err)
	}
}
