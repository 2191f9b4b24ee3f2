package odb_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// onKeys is h with a store of its own over other keys, which the caller closes.
func (h *ingestHost) onKeys(keys kv.Store, options odb.Options) *ingestHost {
	h.tb.Helper()
	other := *h
	var err error
	other.keys = keys
	other.store, err = odb.Open(h.tb.Context(), keys, h.files, options)
	h.must(err)
	return &other
}

// A store that closes ends the forks whose turn has not come, which read nothing before.
func TestLoansWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	h := newIngestHost(t, odb.Options{})
	fills["one segment"](h, g)
	keys := &meddledKeys{Store: h.keys}
	busy := h.onKeys(keys, odb.Options{})
	busy.store.HoldLoanWalks()
	var walked atomic.Bool
	isOfFork := func(key []byte) bool { return key[0] == 'm' && !isManifestOf(h.pool)(key) }
	keys.meddle(isOfFork, func() { walked.Store(true) }) // a walk reads the manifest first
	forks := []*ingestHost{busy.forkOf(public), busy.forkOf(public), busy.forkOf(public, secret)}
	h.must(busy.store.Close(t.Context()))
	if walked.Load() {
		t.Error("a walk has begun out of turn")
	}
	for i, fork := range forks { // what was not found out is found out by who asks
		fork.store = h.store
		if has, err := fork.view().Has(t.Context(), secret); err != nil || has != (i == 2) {
			t.Errorf("Has of fork %d = %v, %v", i, has, err)
		}
	}
}

// Forks that took the same share one walk, and everybody who waits for any of them gets an answer.
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
		waiters.Go(func() {
			if has, err := v.Has(t.Context(), below); err != nil || has != (i == 0) {
				t.Errorf("Has of fork %d = %v, %v", i, has, err)
			}
		})
	}
	for deadline := time.Now().Add(5 * time.Minute); h.store.LoanWaiterCount() < len(forks); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait", h.store.LoanWaiterCount())
		}
	}
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
	if loans, sets, _ := h.store.KnownLoans(); loans != len(forks) || sets != 2 {
		t.Errorf("%d walks for %d forks", sets, loans)
	}
	for i, fork := range forks {
		if count, err := fork.store.BorrowedLayerCount(t.Context(), fork.pool); err != nil || count > 0 != (i > 0) {
			t.Errorf("%d layers of fork %d are not its own, %v", count, i, err)
		}
		fork.fsck()
	}
	checkReadable(t, g, forks[len(forks)-1], public)
}

// A twin whose fork has gone leaves the others to find out by themselves.
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
	if loans, _, _ := h.store.KnownLoans(); loans != 1 {
		t.Errorf("%d loans are known of one fork", loans)
	}
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
	keys.meddle(isManifestOf(fork.pool), func() {
		batch := kv.NewBatch()
		other.store.DropPool(batch, fork.pool)
		other.store.DropPool(batch, h.pool)
		_, err := keys.Apply(t.Context(), batch)
		swept, sweepErr := other.store.Sweep(t.Context(), 0)
		if err := errors.Join(err, sweepErr); err != nil || swept.PoolCount != 2 || swept.FileCount < 2 {
			t.Errorf("the pools have not gone: %+v, %v", swept, err)
		}
	})
	release()
	other.store.AwaitLoans()
	if n := other.store.Stats().CorruptCount; n != 0 {
		t.Errorf("%d reads of a sound store are counted as corrupt", n)
	}
	if loans, _, size := other.store.KnownLoans(); loans != 0 || size != 0 {
		t.Errorf("%d loans of %d bytes are known of no fork", loans, size)
	}
}

// What is known of forks keeps to its part of the cache, tips and all, and nothing begins unasked when those that wait fill it.
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
	_, err := w.store.Compact(t.Context(), w.pool, odb.CompactOptions{All: true}) // what is reached takes a bit each
	w.must(err)
	var release func()
	fork := func(i int) odb.PoolID {
		pool := w.forkOf(tips[i:]...)
		if release == nil {
			w.store.AwaitLoans()
		}
		if _, _, size := w.store.KnownLoans(); size < object.IDSize*(tipCount-i) || size > budget+object.IDSize*tipCount {
			t.Errorf("%d bytes after fork %d", size, i)
		}
		return pool
	}
	for i := range forks {
		fork(i)
	}
	if loans, _, _ := w.store.KnownLoans(); loans > budget/(object.IDSize*(tipCount-forks)) {
		t.Errorf("%d loans are kept", loans)
	}
	release = w.store.HoldLoanWalks()
	var last odb.PoolID
	for i := range forks {
		last = fork(i)
	}
	release()
	w.pool = last
	w.with(func(v *odb.View) {
		if has, err := v.Has(t.Context(), tips[0]); err != nil || has {
			t.Errorf("what the last fork has not taken: %v, %v", has, err)
		}
	})
	w.store.AwaitLoans()
}
