package refs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// readingWorld is two servers over one store, and what a request on one of them has read for a
// transaction that moves main from 1.
type readingWorld struct {
	t           *testing.T
	keys        *counting
	here, there *refs.Store
	repo        refs.RepoID
	now         time.Time
	change      refs.Change
	looks       func() // is called when a server looks who asks to yield
}

func newReadingWorld(t *testing.T) *readingWorld {
	t.Helper()
	w := &readingWorld{t: t, keys: &counting{Store: openKV(t)}, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	options := refs.Options{Shared: true, CombineMax: 64, Now: func() time.Time { return w.now }}
	w.here = refs.Open(&onlooker{Store: w.keys, looks: func() { w.looks() }}, options)
	w.there = refs.Open(w.keys.Store, options)
	w.repo = createRepo(t, w.keys, w.there)
	set(t, w.there, w.repo, "refs/heads/main", 1)
	w.change = refs.Change{Receipt: receipt(w.repo, "k", "body"), Names: []string{"refs/heads/main"}, Ahead: w.ahead}
	return w
}

// ahead asks for a row beside refs.
func (w *readingWorld) ahead() (kv.ReadSet, func(kv.Rows)) {
	return kv.ReadSet{Keys: [][]byte{[]byte("zzz")}}, func(kv.Rows) {}
}

// read begins the request.
func (w *readingWorld) read() {
	w.t.Helper()
	snapshot, reading, err := w.here.SnapshotFor(w.t.Context(), w.repo, w.change.Receipt, w.ahead, w.change.Names...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() {
		if err := snapshot.Close(); err != nil {
			w.t.Error(err)
		}
	}()
	if ref, err := snapshot.Lookup(w.t.Context(), "refs/heads/main"); err != nil || ref.ID != id(1) {
		w.t.Fatalf("%+v, %v", ref, err)
	}
	w.change.Begun = reading
}

// write ends it, and returns the calls of the store without those of the feed.
func (w *readingWorld) write(prepare func(context.Context, *refs.Tx) error) (refs.Result, string, error) {
	w.t.Helper()
	w.keys.take()
	result, err := w.here.Update(w.t.Context(), w.repo, w.change, prepare)
	return result, w.keys.take(), err
}

// put changes a row behind the back of both servers.
func (w *readingWorld) put(key, value []byte) {
	w.t.Helper()
	batch := kv.NewBatch()
	if batch.Put(key, value); value == nil {
		batch = kv.NewBatch()
		batch.Delete(key)
	}
	if commit, err := w.keys.Store.Apply(w.t.Context(), batch); err != nil || commit.Wait(w.t.Context()) != nil {
		w.t.Fatal(err)
	}
}

// A transaction builds on what its request has read, and the batch decides whether that held:
// whatever has happened in between, it ends as one that had read nothing before.
func TestReading(t *testing.T) {
	t.Parallel()
	const fresh, late = "read h a z i r, apply", "apply, read h a z i r"
	for _, test := range []struct {
		name    string
		between func(w *readingWorld)
		trips   string
		err     error
		main    int
		result  string
	}{
		{"nothing", func(*readingWorld) {}, "apply", nil, 2, "mine"},
		{"another server moves another ref", func(w *readingWorld) {
			set(w.t, w.there, w.repo, "refs/heads/other", 7)
		}, late + ", apply", nil, 2, "mine"},
		{"another server moves the ref", func(w *readingWorld) {
			set(w.t, w.there, w.repo, "refs/heads/main", 7)
		}, late + ", get h", refs.ErrStale, 7, ""},
		{"another server does the same request", func(w *readingWorld) {
			change := refs.Change{Receipt: w.change.Receipt}
			if _, err := w.there.Update(w.t.Context(), w.repo, change, committer(2, "theirs")); err != nil {
				w.t.Fatal(err)
			}
		}, late, nil, 2, "theirs"},
		{"another server deletes the repository", func(w *readingWorld) {
			if _, err := w.there.Update(w.t.Context(), w.repo, refs.Change{}, drop); err != nil {
				w.t.Fatal(err)
			}
		}, late, refs.ErrRepositoryNotFound, 0, ""},
		{"this server moves another ref", func(w *readingWorld) {
			set(w.t, w.here, w.repo, "refs/heads/other", 7)
		}, fresh, nil, 2, "mine"},
		{"this server moves it with others", func(w *readingWorld) {
			_, err := w.here.UpdateAll(w.t.Context(), []refs.Part{{Repo: w.repo}}, nil,
				func(ctx context.Context, txs []*refs.Tx) ([]byte, error) {
					return nil, setter("refs/heads/other", 7)(ctx, txs[0])
				})
			if err != nil {
				w.t.Fatal(err)
			}
		}, fresh, nil, 2, "mine"},
		{"a second", func(w *readingWorld) { w.now = w.now.Add(time.Second) }, "apply", nil, 2, "mine"},
		{"more than a second", func(w *readingWorld) { w.now = w.now.Add(time.Second + 1) }, fresh, nil, 2, "mine"},
		{"the hour", func(w *readingWorld) {
			w.now = w.now.Add(time.Hour - time.Millisecond)
			w.read()
			w.now = w.now.Add(time.Millisecond)
		}, fresh, nil, 2, "mine"},
		{"another name", func(w *readingWorld) {
			w.change.Names = append(w.change.Names, "refs/heads/other")
		}, fresh, nil, 2, "mine"},
		{"another repository", func(w *readingWorld) {
			w.repo = createRepo(w.t, w.keys, w.there)
			set(w.t, w.there, w.repo, "refs/heads/main", 1)
		}, fresh, nil, 2, "mine"},
		{"who asks to yield", func(w *readingWorld) {
			w.put(yieldRow(w.repo), []byte("another server"))
			w.looks = func() { w.put(yieldRow(w.repo), nil) }
			w.read()
		}, "get a, " + fresh, nil, 2, "mine"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newReadingWorld(t)
			w.read()
			test.between(w)
			result, trips, err := w.write(func(ctx context.Context, tx *refs.Tx) error {
				tx.SetResult([]byte("mine"))
				return tx.Set(ctx, "refs/heads/main", new(id(1)), id(2), object.ZeroID)
			})
			if !errors.Is(err, test.err) || result.Replayed != (test.result == "theirs") ||
				result.Replayed && string(result.Receipt) != test.result {
				t.Errorf("%+v, %v", result, err)
			}
			if !strings.HasPrefix(trips+", ", test.trips+", ") {
				t.Errorf("%s; want %s", trips, test.trips)
			}
			if test.main == 0 {
				return
			}
			if got := state(t, openSnapshot(t, w.there, w.repo)); got["refs/heads/main"] != id(test.main) {
				t.Errorf("%v", got)
			}
			checkTables(t, w.keys, w.repo)
		})
	}
}

// A refusal is not that of the state that was read if the repository has moved since.
func TestReadingOfARefusal(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{false, true} {
		w := newReadingWorld(t)
		w.read()
		want := refs.ErrStale
		if moves {
			set(t, w.there, w.repo, "refs/heads/main", 7)
			want = nil
		}
		_, trips, err := w.write(func(ctx context.Context, tx *refs.Tx) error {
			return tx.Set(ctx, "refs/heads/main", new(id(7)), id(8), object.ZeroID)
		})
		if !errors.Is(err, want) || (trips == "get h") == moves {
			t.Errorf("it moves %v: %v after %s", moves, err, trips)
		}
	}
}

// Of those that wait for the same repository, nobody builds on what was read before the others.
func TestReadingsOfMany(t *testing.T) {
	t.Parallel()
	w := newReadingWorld(t)
	w.change.Combiner, w.change.Receipt = combinable{}, nil
	c := newCrowd(t, w.here, w.repo)
	var all []*told
	for i := range 10 {
		w.read()
		all = append(all, c.add(t.Context(), w.change, func(ctx context.Context, tx *refs.Tx) error {
			return tx.Set(ctx, fmt.Sprintf("refs/tags/%d", i), &object.ZeroID, id(i+1), object.ZeroID)
		}))
	}
	w.keys.take()
	c.run()
	if calls := w.keys.take(); strings.Count(calls, "apply") > 2 {
		t.Errorf("%s", calls)
	}
	for i, got := range all {
		got.want(t, fmt.Sprint(i), uint64(3+i), nil)
	}
	checkTables(t, w.keys, w.repo)
}
