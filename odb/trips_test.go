package odb_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// countedKeys counts the round trips that a store would cost behind a network. A page of a scan is
// one.
type countedKeys struct {
	kv.Store
	trips atomic.Int64
}

func (s *countedKeys) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.trips.Add(1)
	return s.Store.Get(ctx, key)
}

func (s *countedKeys) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	s.trips.Add(1)
	return s.Store.Read(ctx, set)
}

func (s *countedKeys) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		page, pairs := 16, 0
		s.trips.Add(1)
		for pair, err := range s.Store.Scan(ctx, options) {
			if pairs++; pairs > page {
				s.trips.Add(1)
				page, pairs = min(2*page, kv.PageCountMax), 1
			}
			if !yield(pair, err) {
				return
			}
		}
	}
}

func (s *countedKeys) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	s.trips.Add(1)
	return s.Store.Snapshot(ctx)
}

func (s *countedKeys) Apply(ctx context.Context, b *kv.Batch) (kv.Commit, error) {
	s.trips.Add(1)
	return s.Store.Apply(ctx, b)
}

// count returns the trips of act, and ends the test when they are more than so many.
func (s *countedKeys) count(t *testing.T, what string, most int64, act func()) {
	t.Helper()
	before := s.trips.Load()
	act()
	trips := s.trips.Load() - before
	t.Logf("%s: %d trips", what, trips)
	if trips > most {
		t.Errorf("%s costs %d trips, at most %d are allowed", what, trips, most)
	}
}

// remotePool returns a pool in a store that counts trips, a second store over the same tables, as
// another server has, and the tip of a history of count commits of three objects each.
func remotePool(t *testing.T, count int) (keys *countedKeys, p, other *odbtest.Pool, tip object.ID) {
	t.Helper()
	h := odbtest.NewPool(t, odb.Options{})
	keys = &countedKeys{Store: h.Keys}
	p, other = onKeys(h, keys, odb.Options{RemoteKeys: true}), onKeys(h, keys, odb.Options{RemoteKeys: true})
	t.Cleanup(func() {
		for _, pool := range []*odbtest.Pool{p, other} {
			h.Must(pool.Store.Close(context.Background())) //nolint:usetesting // the context of the test has ended
		}
	})
	for i := range count {
		tip = commitFiles(t, p, i, 1, tip)
	}
	return keys, p, other, tip
}

// commitFiles commits a tree with new files, as the API does.
func commitFiles(t *testing.T, p *odbtest.Pool, i, files int, parent object.ID) object.ID {
	t.Helper()
	v, err := p.Store.View(t.Context(), p.ID)
	p.Must(err)
	q := v.NewQuarantine(t.Context())
	write := func(kind object.Type, data []byte) object.ID {
		id, err := q.Write(t.Context(), kind, data, object.ZeroID)
		p.Must(err)
		return id
	}
	var entries []object.TreeEntry
	for j := range files {
		blob := write(object.TypeBlob, fmt.Appendf(nil, "file %d of commit %d", j, i))
		entries = append(entries, odbtest.FileEntry(fmt.Sprintf("file%d", j), blob))
	}
	object.SortTree(entries)
	tree := write(object.TypeTree, object.AppendTree(nil, entries))
	var parents []object.ID
	if !parent.IsZero() {
		parents = append(parents, parent)
	}
	tip := write(object.TypeCommit, odbtest.CommitOf(tree, i, parents...))
	p.Must(q.Refresh(t.Context()))
	b := kv.NewBatch()
	p.Must(q.Stage(t.Context(), b))
	_, err = p.Keys.Apply(t.Context(), b)
	p.Must(err)
	q.Settled(t.Context())
	p.Must(q.Close())
	p.Must(v.Close())
	return tip
}

// TestTrips holds how often a store behind a network is asked.
func TestTrips(t *testing.T) {
	t.Parallel()
	const commits = 180 // 540 objects
	keys, p, other, tip := remotePool(t, commits)
	keys.count(t, "a commit of one file", 4, func() { // Stage, and the batch
		tip = commitFiles(t, p, commits, 1, tip)
	})
	keys.count(t, "a commit of eight files", 4, func() { tip = commitFiles(t, p, commits+1, 8, tip) })
	keys.count(t, "the first commit on another server", 8, func() { tip = commitFiles(t, other, commits+2, 8, tip) })
	keys.count(t, "a commit after one of another server", 5, func() { tip = commitFiles(t, p, commits+3, 8, tip) })
	for name, pool := range map[string]*odbtest.Pool{"server": p, "other server": other} {
		keys.count(t, "a clone from the "+name, 8, func() {
			v, err := pool.Store.View(t.Context(), pool.ID)
			p.Must(err)
			count := clonedCount(t, v, tip)
			p.Must(v.Close())
			if want := 3*commits + 3 + 3*10; count != want {
				t.Errorf("the clone has %d objects, want %d", count, want)
			}
		})
	}
	keys.count(t, "a fold", 60, func() { p.CompactAll(false) })
	p.Fsck()
}

// clonedCount returns the number of objects in a clone.
func clonedCount(t *testing.T, v *odb.View, tip object.ID) int {
	t.Helper()
	plan, err := packgen.Plan(t.Context(), v, packgen.Request{Wants: []object.ID{tip}, OFSDelta: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	var packed bytes.Buffer
	if _, err := plan.WriteTo(t.Context(), &packed, nil); err != nil {
		t.Fatal(err)
	}
	return int(binary.BigEndian.Uint32(packed.Bytes()[8:]))
}

// rewindable is a store that tells of a loss when it is told to.
type rewindable struct {
	kv.Store
	rewound []func()
}

func (s *rewindable) OnRewind(call func()) { s.rewound = append(s.rewound, call) }

func (s *rewindable) Rewinds() uint64 { return 0 } // no batch asks

// TestCopiesForgetWhatIsLost has a store lose what a copy of a hot layer holds: it is stored again
// when it is written again.
func TestCopiesForgetWhatIsLost(t *testing.T) {
	t.Parallel()
	h := odbtest.NewPool(t, odb.Options{})
	keys := &rewindable{Store: h.Keys}
	p := onKeys(h, keys, odb.Options{RemoteKeys: true})
	defer func() { h.Must(p.Store.Close(context.Background())) }() //nolint:usetesting // it may be over
	first := commitFiles(t, p, 0, 1, object.ZeroID)
	rows := func() map[string][]byte {
		all := make(map[string][]byte)
		for pair, err := range h.Keys.Scan(t.Context(), kv.ScanOptions{}) {
			h.Must(err)
			all[string(pair.Key)] = bytes.Clone(pair.Value)
		}
		return all
	}
	before := rows()
	second := commitFiles(t, p, 1, 1, first)
	b := kv.NewBatch()
	for key := range rows() {
		if value, was := before[key]; was {
			b.Put([]byte(key), value)
		} else {
			b.Delete([]byte(key))
		}
	}
	_, err := h.Keys.Apply(t.Context(), b)
	h.Must(err)
	for _, call := range keys.rewound {
		call()
	}
	if again := commitFiles(t, p, 1, 1, first); again != second {
		t.Fatalf("%s, want %s", again, second)
	}
	plain := onKeys(h, h.Keys, odb.Options{})
	defer func() { h.Must(plain.Store.Close(context.Background())) }() //nolint:usetesting // it may be over
	v, err := plain.Store.View(t.Context(), p.ID)
	h.Must(err)
	defer func() { h.Must(v.Close()) }()
	if count := clonedCount(t, v, second); count != 6 {
		t.Errorf("the clone has %d objects", count)
	}
}

// TestCopyIsKept writes to a layer of a near store that is copied: the copy gets what this process
// writes, so that later clones read the store no more often than before.
func TestCopyIsKept(t *testing.T) {
	t.Parallel()
	h := odbtest.NewPool(t, odb.Options{})
	keys := &countedKeys{Store: h.Keys}
	p := onKeys(h, keys, odb.Options{})
	defer func() { h.Must(p.Store.Close(context.Background())) }() //nolint:usetesting // it may be over
	var tip object.ID
	clone := func() {
		v, err := p.Store.View(t.Context(), p.ID)
		p.Must(err)
		clonedCount(t, v, tip)
		p.Must(v.Close())
	}
	commits := 0
	commit := func(count int) {
		for range count {
			tip = commitFiles(t, p, commits, 1, tip)
			commits++
		}
	}
	commit(30)
	for range 10 { // lookups enough for a copy
		clone()
	}
	keys.count(t, "a clone from a copy", 2, clone)
	commit(30)
	keys.count(t, "a clone from a copy that was written to", 2, clone)
}
