package refs_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

func names(t *testing.T, rows func(yield func(refs.Ref, error) bool)) []string {
	t.Helper()
	var names []string
	for ref, err := range rows {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, ref.Name)
	}
	return names
}

func TestSnapshotWalks(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, store)
	all := []string{
		"refs/changes/1/head", "refs/heads/a", "refs/heads/b/c", "refs/heads/b0", "refs/namespaces/ephemeral/refs/heads/x",
		"refs/namespaces/ephemeral/refs/tags/t", "refs/notes/commits", "refs/tags/v1", "refs/tags/v2", "refs/tags/\xff\xff",
	}
	for i, name := range slices.Backward(all) {
		set(t, store, repo, name, i+1)
	}
	set(t, store, createRepo(t, keys, store), "refs/heads/of-another", 1)
	shown := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return strings.HasPrefix(name, "refs/namespaces/")
	})
	for kind, reader := range map[string]*refs.Store{
		"decoded": store, "paged": refs.Open(keys, refs.Options{CacheBytes: 1}),
	} {
		for round := range 2 {
			snapshot := openSnapshot(t, reader, repo)
			ctx := t.Context()
			for what, pair := range map[string][2][]string{
				"everything":          {names(t, snapshot.All(ctx, "")), all},
				"branches":            {names(t, snapshot.All(ctx, "refs/heads/")), all[1:4]},
				"a folder":            {names(t, snapshot.All(ctx, "refs/heads/b/")), all[2:3]},
				"a prefix":            {names(t, snapshot.All(ctx, "refs/heads/b")), all[2:4]},
				"the last byte":       {names(t, snapshot.All(ctx, "refs/tags/\xff")), all[9:]},
				"nothing":             {names(t, snapshot.All(ctx, "refs/heads/z")), nil},
				"tags after v1":       {names(t, snapshot.After(ctx, "refs/tags/", "refs/tags/v1")), all[8:]},
				"tags after none":     {names(t, snapshot.After(ctx, "refs/tags/", "")), all[7:]},
				"tags after the last": {names(t, snapshot.After(ctx, "refs/tags/", "refs/tags/\xff\xff")), nil},
				"main":                {names(t, snapshot.In(ctx, refs.Main, "")), shown},
				"main refs/":          {names(t, snapshot.In(ctx, refs.Main, "refs/")), shown},
				"main refs/n":         {names(t, snapshot.In(ctx, refs.Main, "refs/n")), all[6:7]},
				"main refs/name":      {names(t, snapshot.In(ctx, refs.Main, "refs/namespaces/")), nil},
				"main branches":       {names(t, snapshot.In(ctx, refs.Main, "refs/heads/")), all[1:4]},
				"ephemeral":           {names(t, snapshot.In(ctx, refs.Ephemeral, "")), all[4:6]},
				"ephemeral branches":  {names(t, snapshot.In(ctx, refs.Ephemeral, "refs/heads/")), all[4:5]},
			} {
				if !slices.Equal(pair[0], pair[1]) {
					t.Errorf("%s, round %d, %s: got %q, want %q", kind, round, what, pair[0], pair[1])
				}
			}
			for i, name := range all {
				if ref, err := snapshot.Lookup(ctx, name); err != nil || ref.ID != id(i+1) || ref.Name != name {
					t.Errorf("%s, %s: %+v, %v", kind, name, ref, err)
				}
			}
			for _, name := range []string{"", "refs/heads/b", "refs/heads/b/c/d", "refs/heads/of-another", "refs/z"} {
				if ref, err := snapshot.Lookup(ctx, name); !errors.Is(err, refs.ErrNotFound) {
					t.Errorf("%s, %s: %+v, %v", kind, name, ref, err)
				}
			}
			for ref, err := range snapshot.All(ctx, "") {
				if err != nil || ref.Name != all[0] {
					t.Errorf("%s begins with %+v, %v", kind, ref, err)
				}
				break // a walk may end early
			}
		}
	}
}

func TestCreationOrder(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := refs.Open(keys, refs.Options{Now: func() time.Time { at = at.Add(time.Second); return at }})
	repo := createRepo(t, keys, store)
	set(t, store, repo, "refs/heads/c", 1, "refs/heads/a", 1, "refs/tags/t", 1, "refs/heads/b", 1)
	set(t, store, repo, "refs/heads/d", 1, "refs/namespaces/ephemeral/refs/heads/e", 1)
	early := openSnapshot(t, store, repo)
	created, err := early.Lookup(t.Context(), "refs/heads/c")
	if err != nil {
		t.Fatal(err)
	}
	set(t, store, repo, "refs/heads/c", 2)                      // keeps its place
	set(t, store, repo, "refs/heads/a", 0, "refs/heads/a", 2)   // gets a new one
	set(t, store, repo, "refs/heads/d", 0)                      // loses it
	set(t, store, repo, "refs/heads/b", 0)                      // loses it,
	set(t, store, repo, "refs/heads/d/x", 1, "refs/heads/b", 9) // and gets a new one

	late := openSnapshot(t, store, repo)
	for what, test := range map[string]struct {
		snapshot *refs.Snapshot
		ns       refs.Namespace
		want     []string
	}{
		"early": {early, refs.Main, []string{"c", "a", "b", "d"}},
		"late":  {late, refs.Main, []string{"c", "a", "d/x", "b"}},
		"other": {late, refs.Ephemeral, []string{"e"}},
	} {
		for limit := 1; limit <= 5; limit++ {
			var got []string
			var after refs.Creation
			for {
				page, err := test.snapshot.Branches(t.Context(), test.ns, after, limit)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				for _, ref := range page {
					got = append(got, strings.TrimPrefix(ref.Name, test.ns.BranchPrefix()))
				}
				after = page[len(page)-1].Created
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%s in pages of %d: got %v, want %v", what, limit, got, test.want)
			}
		}
	}
	updated, err := late.Lookup(t.Context(), "refs/heads/c")
	if err != nil || updated.Created != created.Created || !updated.CreatedAt().Equal(created.CreatedAt()) ||
		updated.ID == created.ID {
		t.Errorf("update: %+v became %+v, %v", created, updated, err)
	}
	if created.CreatedAt().Location() != time.UTC || created.CreatedAt().Before(at.Add(-time.Hour)) {
		t.Errorf("created at %v", created.CreatedAt())
	}
	again, err := late.Lookup(t.Context(), "refs/heads/b")
	if err != nil || !again.CreatedAt().After(created.CreatedAt()) || again.Created.Sequence != 8 {
		t.Errorf("created again: %+v, %v", again, err)
	}
}

func TestPeeled(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, store)
	for _, peeled := range []object.ID{id(2), {}, id(3)} {
		if _, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
			if err := tx.Delete(ctx, "refs/tags/v1", nil); err != nil && !errors.Is(err, refs.ErrNotFound) {
				return err
			}
			return tx.Set(ctx, "refs/tags/v1", nil, id(1), peeled)
		}); err != nil {
			t.Fatal(err)
		}
		for _, reader := range []*refs.Store{store, refs.Open(keys, refs.Options{})} {
			for ref, err := range openSnapshot(t, reader, repo).All(t.Context(), "") {
				if err != nil || ref.Peeled != peeled {
					t.Errorf("got %+v, %v, want %s", ref, err, peeled)
				}
			}
		}
	}
}

// hasty is a store whose snapshots expire after some pairs, now fewer, now more.
type hasty struct {
	kv.Store
	count *atomic.Int32
}

type hastySnapshot struct {
	kv.Snapshot
	left atomic.Int32
}

func (s hasty) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	snapshot, err := s.Store.Snapshot(ctx)
	h := &hastySnapshot{Snapshot: snapshot}
	h.left.Store(3 + 29*(s.count.Add(1)%6))
	return h, err
}

func (s *hastySnapshot) Get(ctx context.Context, key []byte) ([]byte, error) {
	if s.left.Add(-1) < 0 {
		return nil, kv.ErrSnapshotExpired
	}
	return s.Snapshot.Get(ctx, key)
}

func (s *hastySnapshot) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	if s.left.Add(-1) < 0 {
		return kv.Rows{}, kv.ErrSnapshotExpired
	}
	return s.Snapshot.Read(ctx, set)
}

func (s *hastySnapshot) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		for pair, err := range s.Snapshot.Scan(ctx, options) {
			if s.left.Add(-1) < 0 {
				yield(kv.Pair{}, kv.ErrSnapshotExpired)
				return
			}
			if !yield(pair, err) {
				return
			}
		}
	}
}

// Snapshots keep showing their sequence while others write, while the views under them expire, and
// from a set that was decoded for another sequence.
func TestSnapshotStaysPut(t *testing.T) {
	t.Parallel()
	keys := hasty{openKV(t), new(atomic.Int32)}
	cachedStore, pagedStore := refs.Open(keys, refs.Options{}), refs.Open(keys, refs.Options{CacheBytes: 1})
	repo := createRepo(t, keys, cachedStore)
	type moment struct {
		cached, paged *refs.Snapshot
		want          map[string]object.ID
	}
	var moments []moment
	want := map[string]object.ID{}
	for i := range 60 {
		pairs := []any{fmt.Sprintf("refs/heads/b%d", i), i + 1}
		want[pairs[0].(string)] = id(i + 1)
		if i > 10 {
			gone, moved := fmt.Sprintf("refs/heads/b%d", i-10), fmt.Sprintf("refs/heads/b%d", i-3)
			pairs = append(pairs, gone, 0, moved, 1000+i)
			delete(want, gone)
			want[moved] = id(1000 + i)
		}
		set(t, cachedStore, repo, pairs...)
		moments = append(moments,
			moment{openSnapshot(t, cachedStore, repo), openSnapshot(t, pagedStore, repo), maps.Clone(want)})
		if i%7 == 0 {
			state(t, moments[i].cached)
		}
	}
	for i, m := range slices.Backward(moments) {
		for kind, snapshot := range map[string]*refs.Snapshot{"cached": m.cached, "paged": m.paged} {
			if got := state(t, snapshot); !maps.Equal(got, m.want) {
				t.Fatalf("%s, moment %d: got %v, want %v", kind, i, got, m.want)
			}
			branches, err := snapshot.Branches(t.Context(), refs.Main, refs.Creation{}, 2)
			if err != nil || len(branches) != min(2, len(m.want)) {
				t.Fatalf("%s, moment %d: %d branches, %v", kind, i, len(branches), err)
			}
			for name, want := range m.want {
				if ref, err := snapshot.Lookup(t.Context(), name); err != nil || ref.ID != want {
					t.Fatalf("%s, moment %d, %s: %+v, %v", kind, i, name, ref, err)
				}
			}
		}
	}
}

func TestClosedSnapshot(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{CacheBytes: 1})
	repo := createRepo(t, keys, store)
	set(t, store, repo, "refs/heads/a", 1)
	snapshot := openSnapshot(t, store, repo)
	if _, err := snapshot.Lookup(t.Context(), "refs/heads/a"); err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.Lookup(t.Context(), "refs/heads/a"); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("lookup: %v", err)
	}
	if stats := keys.Stats(); stats.Snapshots != 0 {
		t.Errorf("%d snapshots are open", stats.Snapshots)
	}
}

func TestSnapshotRequire(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, store)
	snapshot := openSnapshot(t, store, repo)
	for _, want := range []error{nil, kv.ErrConflict} {
		batch := kv.NewBatch()
		snapshot.Require(batch)
		batch.Put([]byte("zzz"), nil)
		if _, err := keys.Apply(t.Context(), batch); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		set(t, store, repo, "refs/heads/a", 1)
	}
}
