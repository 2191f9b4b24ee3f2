package refs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"packhorse/odb/kv"
	"packhorse/pack/object"
	"packhorse/refs"
)

// rewound is a store that can lose its last batches, as after a failover to a replica that did not
// have them yet.
type rewound struct{ now atomic.Pointer[kv.Store] }

func (s *rewound) store() kv.Store { return *s.now.Load() }

func (s *rewound) rewind(to kv.Store) { s.now.Store(&to) }

func (s *rewound) Get(ctx context.Context, key []byte) ([]byte, error) {
	return s.store().Get(ctx, key)
}

func (s *rewound) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	return s.store().Read(ctx, set)
}

func (s *rewound) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return s.store().Scan(ctx, options)
}

func (s *rewound) Snapshot(ctx context.Context) (kv.Snapshot, error) { return s.store().Snapshot(ctx) }

func (s *rewound) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	return s.store().Apply(ctx, batch)
}

func (s *rewound) WaitDurable(ctx context.Context, key []byte) error {
	return s.store().WaitDurable(ctx, key)
}

func (s *rewound) Stats() kv.Stats { return s.store().Stats() }

func (s *rewound) Close() error { return s.store().Close() }

// copyOf returns another store with the same rows.
func copyOf(t *testing.T, store kv.Store) kv.Store {
	t.Helper()
	batch := kv.NewBatch()
	for pair, err := range store.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		batch.Put(pair.Key, pair.Value)
	}
	other := openKV(t)
	if _, err := other.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	return other
}

// A store loses its end, again and again, while readers and writers go on: no cache answers for a
// state that was lost. A snapshot of one shows it as it was, or fails.
func TestLostTail(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			lostTail(t, rand.New(rand.NewPCG(18, seed)))
		})
	}
}

func lostTail(t *testing.T, random *rand.Rand) {
	t.Helper()
	type moment struct {
		keys kv.Store
		want map[string]object.ID
	}
	type held struct {
		*refs.Snapshot
		want map[string]object.ID
	}
	keys := &rewound{}
	keys.rewind(openKV(t))
	stores := []*refs.Store{refs.Open(keys, refs.Options{}), refs.Open(keys, refs.Options{CacheBytes: 1})}
	repo := createRepo(t, keys, stores[0])
	want := map[string]object.ID{}
	saved := []moment{{copyOf(t, keys), maps.Clone(want)}}
	versions := map[refs.Version]map[string]object.ID{}
	var snapshots []held
	lost := 0
	for step := range 60 {
		switch n := random.IntN(12); {
		case n == 0:
			saved = append(saved, moment{copyOf(t, keys), maps.Clone(want)})
		case n <= 2:
			to := saved[len(saved)-1-random.IntN(min(2, len(saved)))]
			keys.rewind(copyOf(t, to.keys))
			want = maps.Clone(to.want)
		default:
			name := fmt.Sprintf("refs/heads/%d", random.IntN(6))
			if _, exists := want[name]; exists && random.IntN(3) == 0 {
				delete(want, name)
				set(t, stores[n%2], repo, name, 0)
			} else {
				want[name] = id(step + 1)
				set(t, stores[n%2], repo, name, step+1)
			}
		}
		for i, store := range stores {
			snapshot := openSnapshot(t, store, repo)
			snapshots = append(snapshots, held{snapshot, maps.Clone(want)})
			if same, seen := versions[snapshot.Version()]; seen && !maps.Equal(same, want) {
				t.Fatalf("step %d: version %v is of %v and of %v", step, snapshot.Version(), same, want)
			}
			versions[snapshot.Version()] = maps.Clone(want)
			if random.IntN(3) == 0 {
				continue // the caches stay behind, the snapshot empty
			}
			if got := state(t, snapshot); !maps.Equal(got, want) {
				t.Fatalf("step %d, store %d: got %v, want %v", step, i, got, want)
			}
			branches, err := snapshot.Branches(t.Context(), refs.Main, refs.Creation{}, 10)
			if err != nil || len(branches) != len(want) {
				t.Fatalf("step %d, store %d: %d branches, %v, want %v", step, i, len(branches), err, want)
			}
		}
		old := snapshots[random.IntN(len(snapshots))]
		switch got, err := read(t.Context(), old.Snapshot); {
		case errors.Is(err, refs.ErrBusy), errors.Is(err, refs.ErrTrimmed):
			lost++
		case err != nil:
			t.Fatal(err)
		case !maps.Equal(got, old.want):
			t.Fatalf("step %d: a snapshot of %v shows %v", step, old.want, got)
		}
	}
	if report, err := stores[0].Fsck(t.Context(), repo); err != nil || report.ProblemCount > 0 {
		t.Errorf("%+v, %v", report, err)
	}
	t.Logf("%d snapshots were lost", lost)
}

// read returns the refs of a snapshot by lookups, or by a walk.
func read(ctx context.Context, snapshot *refs.Snapshot) (map[string]object.ID, error) {
	got := map[string]object.ID{}
	for i := range 6 {
		ref, err := snapshot.Lookup(ctx, fmt.Sprintf("refs/heads/%d", i))
		if err == nil {
			got[ref.Name] = ref.ID
		} else if !errors.Is(err, refs.ErrNotFound) {
			return nil, err
		}
	}
	walked := map[string]object.ID{}
	for ref, err := range snapshot.All(ctx, "") {
		if err != nil {
			return nil, err
		}
		walked[ref.Name] = ref.ID
	}
	if !maps.Equal(got, walked) {
		return nil, fmt.Errorf("looked up %v, walked %v", got, walked)
	}
	return got, nil
}

// A transaction follows the states of its own history, and no others.
func TestFollows(t *testing.T) {
	t.Parallel()
	keys := &rewound{}
	keys.rewind(openKV(t))
	store := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, store)
	version := func() refs.Version { return openSnapshot(t, store, repo).Version() }
	first := version()
	set(t, store, repo, "refs/heads/a", 1)
	second := version()
	saved := copyOf(t, keys)
	set(t, store, repo, "refs/heads/a", 2)
	lost := version()
	set(t, store, repo, "refs/heads/a", 3)
	later := version()
	keys.rewind(saved)
	set(t, store, repo, "refs/heads/a", 4)
	third := version()
	if third.Sequence != lost.Sequence || third == lost {
		t.Errorf("%v and %v", third, lost)
	}
	if _, err := store.Update(t.Context(), repo, refs.Change{}, func(ctx context.Context, tx *refs.Tx) error {
		for state, want := range map[refs.Version]bool{
			first: true, second: true, third: true, lost: false, later: false, {Sequence: 2}: false,
		} {
			if got, err := tx.Follows(ctx, state); err != nil || got != want {
				t.Errorf("%v: %t, %v", state, got, err)
			}
		}
		return refs.ErrUnchanged
	}); err != nil {
		t.Fatal(err)
	}
}

// olderEntry returns a row of the journal as an older release has written it: in version 1 or 2.
func olderEntry(value []byte, version byte) []byte {
	value[0] = version
	if value[1]&1 == 0 { // it is not the first one of its transaction
		return value
	}
	prior := value[2+8+8:]
	_, count := binary.Uvarint(prior)
	_, nameBytes := binary.Uvarint(prior[count:])
	value = slices.Delete(value, 2+8, 2+8+8+count+nameBytes)
	if version == 1 {
		value = slices.Delete(value, 2, 2+8)
	}
	return value
}

// Rows of a release that knew no tokens are read, and followed by rows that have one.
func TestRowsWithoutToken(t *testing.T) {
	t.Parallel()
	keys := openKV(t)
	store := refs.Open(keys, refs.Options{})
	repo := createRepo(t, keys, store)
	set(t, store, repo, "refs/heads/a", 1, "refs/heads/b", 1)
	set(t, store, repo, "refs/heads/a", 2)
	batch := kv.NewBatch()
	for pair, err := range keys.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		switch value := slices.Clone(pair.Value); pair.Key[0] {
		case 'h':
			batch.Put(pair.Key, value[:24])
		case 'j':
			batch.Put(pair.Key, olderEntry(value, 1))
		case 't':
			batch.Delete(pair.Key)
		}
	}
	if _, err := keys.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	store = refs.Open(keys, refs.Options{})
	early := openSnapshot(t, store, repo)
	for round := range 3 {
		if got := state(t, openSnapshot(t, store, repo)); got["refs/heads/a"] != id(round+2) || len(got) != 2 {
			t.Errorf("round %d: %v", round, got)
		}
		if report, err := store.Fsck(t.Context(), repo); err != nil || report.ProblemCount > 0 {
			t.Errorf("round %d: %+v, %v", round, report, err)
		}
		set(t, store, repo, "refs/heads/a", round+3)
	}
	if ref, err := early.Lookup(t.Context(), "refs/heads/a"); err != nil || ref.ID != id(2) {
		t.Errorf("%+v, %v", ref, err)
	}
	page, err := store.Events(t.Context(), repo, 0, 100)
	var told []string
	for _, entry := range page.Entries {
		told = append(told, fmt.Sprint(entry.Sequence, entry.Actor))
	}
	if got, want := strings.Join(told, " "), "2test 2test 3test 4test 5test 6test"; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	row, err := keys.Get(t.Context(), append([]byte{'h'}, repo[:]...))
	if err != nil || len(row) != 48 {
		t.Errorf("head of %d bytes, %v", len(row), err)
	}
}
