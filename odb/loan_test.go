package odb_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// onKeys is h with a store of its own over other keys, which the caller closes.
func (h *ingestHost) onKeys(keys kv.Store, options odb.Options) *ingestHost {
	h.tb.Helper()
	other := *h
	var err error
	other.keys = keys
	other.store, err = odbtest.OpenOn(h.tb.Context(), keys, h.files, options)
	h.must(err)
	return &other
}

// A store that closes ends what is being found out, which has read nothing before its turn.
func TestLoansWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	below := g.tips("refs/heads/secret")[0] // is reached, and no tip
	h := newIngestHost(t, odb.Options{})
	fills["one segment"](h, g)
	busy := h.onKeys(h.keys, odb.Options{})
	busy.store.HoldLoanWalks()
	forks := []*ingestHost{busy.forkOf(public), busy.forkOf(public), busy.forkOf(public, secret)}
	var waiters sync.WaitGroup
	for _, fork := range forks {
		v := fork.view()
		waiters.Go(func() {
			if _, err := v.Has(t.Context(), below); !errors.Is(err, context.Canceled) {
				t.Errorf("who waits for a store that closes is told %v", err)
			}
		})
	}
	awaitLoanWaiters(t, busy.store, len(forks))
	h.must(busy.store.Close(t.Context()))
	waiters.Wait()
	if n := busy.store.Stats().LoanWalkCount; n != 0 {
		t.Errorf("%d walks have begun out of turn", n)
	}
	for i, fork := range forks { // what was not found out is found out by who asks
		fork.store = h.store
		if has, err := fork.view().Has(t.Context(), below); err != nil || has != (i == 2) {
			t.Errorf("Has of fork %d = %v, %v", i, has, err)
		}
	}
}

// awaitLoanWaiters returns when so many wait for what forks may read.
func awaitLoanWaiters(t *testing.T, s *odb.Store, count int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); s.LoanWaiterCount() != count; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, not %d", s.LoanWaiterCount(), count)
		}
	}
}

// Nobody waits for what is read by way of refs, or written: while no walk can begin, a fork is read
// from its tips to the last blob, cloned, and written to. What a client names by its ID waits,
// hidden or absent; who goes away ends what nobody else waits for.
func TestForkReadsFromItsTipsWithoutWaiting(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	for name, fill := range fills {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			h := newIngestHost(t, odb.Options{})
			fill(h, g)
			release := h.store.HoldLoanWalks()
			fork := h.forkOf(public)
			v := fork.view()
			linked := v.Linked()
			for _, id := range g.ids(lines("", []object.ID{public}), "rev-list", "--objects", "--stdin", "--no-object-names") {
				_, _, err := linked.Read(ctx, id)
				h.must(err)
			}
			for _, err := range revwalk.Walk(ctx, linked, revwalk.WalkOptions{Tips: []object.ID{public}}) {
				h.must(err)
			}
			checkPack(t, g, v, packgen.Request{Wants: []object.ID{public}, OFSDelta: true})
			tip := g.tips("refs/heads/main")[0]
			row, err := linked.Graph(ctx, tip)
			h.must(err)
			q := v.NewQuarantine(ctx)
			blob, err := q.Write(ctx, object.TypeBlob, []byte("new in the fork"), object.ZeroID)
			h.must(err)
			_, err = q.Write(ctx, object.TypeTree, treeOf(object.TreeEntry{Mode: object.ModeBlob, Name: "new", ID: blob}),
				row.Tree)
			h.must(err)
			commit, err := q.Write(ctx, object.TypeCommit, commitOf(row.Tree, 1, tip), object.ZeroID)
			h.must(err)
			b := kv.NewBatch()
			h.must(q.Stage(ctx, b))
			_, err = h.keys.Apply(ctx, b)
			h.must(err)
			q.Settled(ctx)
			h.must(q.Close())
			if has, err := fork.view().Has(ctx, commit); err != nil || !has {
				t.Errorf("the new commit: %v, %v", has, err)
			}
			if n := h.store.LoanWaiterCount(); n != 0 {
				t.Errorf("%d wait", n)
			}
			ended, cancel := context.WithCancel(ctx)
			var waiters sync.WaitGroup
			for _, id := range []object.ID{secret, {1}, row.Tree} {
				waiters.Go(func() {
					if has, err := v.Has(ended, id); has || !errors.Is(err, context.Canceled) {
						t.Errorf("Has(%s) = %v, %v", id, has, err)
					}
				})
			}
			awaitLoanWaiters(t, h.store, 3)
			cancel()
			waiters.Wait()
			release()
			h.store.AwaitLoans()
			checkReadable(t, g, fork, public)
			fork.fsck()
		})
	}
}

// Forks that took the same are found out by one walk from end to end, and everybody who waits for
// any of them gets an answer.
func TestLoansOfTwins(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	below := g.tips("refs/heads/secret")[0] // is reached, and no tip
	h := newIngestHost(t, odb.Options{})
	fills["one segment"](h, g)
	release := h.store.HoldLoanWalks()
	forks := []*ingestHost{h.forkOf(public, secret)}
	for range 4 {
		forks = append(forks, h.forkOf(public))
	}
	var waiters sync.WaitGroup
	for i, fork := range forks {
		v := fork.view()
		if has, err := v.Has(t.Context(), public); err != nil || !has {
			t.Errorf("the tip of fork %d is not there at once: %v, %v", i, has, err)
		}
		for range 2 {
			waiters.Go(func() {
				if has, err := v.Has(t.Context(), below); err != nil || has != (i == 0) {
					t.Errorf("Has of fork %d = %v, %v", i, has, err)
				}
			})
		}
	}
	awaitLoanWaiters(t, h.store, 2*len(forks))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := forks[1].view().Has(ended, below); !errors.Is(err, context.Canceled) {
		t.Errorf("who does not wait any more is told %v", err)
	}
	release()
	waiters.Wait()
	h.store.AwaitLoans()
	if n := h.store.LoanWaiterCount(); n != 0 {
		t.Errorf("%d still wait", n)
	}
	if loans, _ := h.store.KnownLoans(); loans != len(forks) {
		t.Errorf("%d loans of %d forks", loans, len(forks))
	}
	if n := h.store.Stats().LoanWalkCount; n != uint64(len(forks)) {
		t.Errorf("%d sets were found out of %d forks", n, len(forks))
	}
	for i, fork := range forks {
		if count, err := fork.store.BorrowedLayerCount(t.Context(), fork.pool); err != nil || count > 0 != (i > 0) {
			t.Errorf("%d layers of fork %d are not its own, %v", count, i, err)
		}
		fork.fsck()
	}
	checkReadable(t, g, forks[len(forks)-1], public)
}

// A fork that has gone leaves the others to find out by themselves.
func TestLoanOutlivesItsTwin(t *testing.T) {
	t.Parallel()
	g, public, _ := twoLines(t)
	h := newIngestHost(t, odb.Options{})
	fills["one segment"](h, g)
	release := h.store.HoldLoanWalks()
	first, second := h.forkOf(public), h.forkOf(public)
	dropPool(t, first)
	release()
	h.store.AwaitLoans()
	checkReadable(t, g, second, public)
	second.fsck()
}

// A fork and its source that go while it is found out what it may read are not corrupt.
func TestLoanOfPoolsThatGo(t *testing.T) {
	t.Parallel()
	g, public, _ := twoLines(t)
	h := newIngestHost(t, odb.Options{})
	fills["one segment"](h, g)
	keys := &meddledKeys{Store: h.keys}
	other := h.onKeys(keys, odb.Options{})
	defer func() { h.must(other.store.Close(t.Context())) }()
	release := other.store.HoldLoanWalks()
	fork := other.forkOf(public)
	other.store.AwaitSettled()
	v := fork.view()
	keys.meddle(isManifestOf(fork.pool), func() {
		batch := kv.NewBatch()
		other.store.DropPool(batch, fork.pool)
		other.store.DropPool(batch, h.pool)
		_, err := keys.Apply(t.Context(), batch)
		swept, sweepErr := other.store.Sweep(t.Context(), 0)
		if err := errors.Join(err, sweepErr); err != nil || swept.PoolCount != 2 {
			t.Errorf("the pools have not gone: %+v, %v", swept, err)
		}
	})
	var waiters sync.WaitGroup
	waiters.Go(func() {
		if has, err := v.Has(t.Context(), object.ID{1}); has || !errors.Is(err, odb.ErrNoPool) {
			t.Errorf("who asked is told %v, %v", has, err)
		}
	})
	awaitLoanWaiters(t, other.store, 1)
	release()
	waiters.Wait()
	if n := other.store.Stats().CorruptCount; n != 0 {
		t.Errorf("%d reads of a sound store are counted as corrupt", n)
	}
}

// What is known of forks keeps to its part of the cache, tips and all, and what was used last
// stays.
func TestLoansKeepToTheirBudget(t *testing.T) {
	t.Parallel()
	const (
		budget   = 128 << 10
		tipCount = 900
		forks    = 12 // of 18,000 bytes of tips each
	)
	w := newWorld(t, odb.Options{CacheBytes: 8 * budget})
	d := w.draft()
	d.write(object.TypeBlob, []byte("hidden"), object.ZeroID)
	var tips []object.ID
	for i := range uint64(tipCount) {
		tips = append(tips, d.write(object.TypeBlob, binary.BigEndian.AppendUint64(nil, i), object.ZeroID))
	}
	d.commit()
	// What is reached takes a bit each.
	_, err := repack.Compact(t.Context(), w.store, w.pool, repack.CompactOptions{All: true})
	w.must(err)
	base, first := w.pool, odb.PoolID{}
	for i := range forks {
		pool := w.forkOf(tips[i:]...)
		if i == 0 {
			first = pool
		}
		for _, w.pool = range []odb.PoolID{first, pool} {
			w.with(func(v *odb.View) {
				if has, err := v.Has(t.Context(), object.ID{1}); err != nil || has {
					t.Errorf("what is not there: %v, %v", has, err)
				}
				if has, err := v.Has(t.Context(), tips[i]); err != nil || !has {
					t.Errorf("a tip of fork %d: %v, %v", i, has, err)
				}
			})
		}
		w.pool = base
		if _, size := w.store.KnownLoans(); size < object.IDSize*(tipCount-i) || size > budget {
			t.Errorf("%d bytes after fork %d", size, i)
		}
	}
	if loans, _ := w.store.KnownLoans(); loans > budget/(object.IDSize*(tipCount-forks)) {
		t.Errorf("%d loans are kept", loans)
	}
	if n := w.store.Stats().LoanWalkCount; n != forks {
		t.Errorf("%d sets were found out of %d forks", n, forks)
	}
}
