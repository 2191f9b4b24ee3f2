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
func onKeys(h *odbtest.Pool, keys kv.Store, options odb.Options) *odbtest.Pool {
	h.Helper()
	other := *h
	var err error
	other.Keys = keys
	other.Store, err = odbtest.OpenOn(h.Context(), keys, h.Files, options)
	h.Must(err)
	return &other
}

// meddledPool returns a pool that one of [fills] has filled, in a store on keys that a test meddles
// with.
func meddledPool(t *testing.T, g *odbtest.Repository, fill string) (*odbtest.Pool, *odbtest.MeddledKeys) {
	t.Helper()
	h := odbtest.NewPool(t, odb.Options{})
	fills[fill](h, g)
	keys := &odbtest.MeddledKeys{Store: h.Keys}
	other := onKeys(h, keys, odb.Options{})
	t.Cleanup(func() { h.Must(other.Store.Close(context.Background())) }) //nolint:usetesting // t's has ended
	return other, keys
}

// A store that closes ends the visibility walks, which have read nothing before their turn.
func TestVisibilityWalksTakeTurns(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	below := g.Tips("refs/heads/secret")[0] // is reached but is no tip
	h := odbtest.NewPool(t, odb.Options{})
	fills["one segment"](h, g)
	busy := onKeys(h, h.Keys, odb.Options{})
	busy.Store.HoldVisibilityWalks()
	forks := []*odbtest.Pool{forkPool(busy, public), forkPool(busy, public), forkPool(busy, public, secret)}
	var waiters sync.WaitGroup
	for _, fork := range forks {
		v := fork.View()
		waiters.Go(func() {
			if _, err := v.Has(t.Context(), below); !errors.Is(err, context.Canceled) {
				t.Errorf("who waits for a store that closes is told %v", err)
			}
		})
	}
	awaitVisibilityWaiters(t, busy.Store, len(forks))
	h.Must(busy.Store.Close(t.Context()))
	waiters.Wait()
	if n := busy.Store.Stats().VisibilityWalkCount; n != 0 {
		t.Errorf("%d walks have begun out of turn", n)
	}
	for i, fork := range forks { // the next request walks again
		fork.Store = h.Store
		if has, err := fork.View().Has(t.Context(), below); err != nil || has != (i == 2) {
			t.Errorf("Has of fork %d = %v, %v", i, has, err)
		}
	}
}

// Walks of one owner, however long they take and however many wait, leave room for those of
// another one.
func TestVisibilityWalksOfOwners(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	below := g.Tips("refs/heads/secret")[0] // is reached but is no tip
	h := odbtest.NewPool(t, odb.Options{})
	fills["one segment"](h, g)
	release := h.Store.HoldVisibilityWalksOf("acme") // as many as it may have
	const crowd = 5
	var waiters sync.WaitGroup
	for range crowd {
		v := forkPool(h, public).View().For("acme")
		waiters.Go(func() {
			if has, err := v.Has(t.Context(), below); err != nil || has {
				t.Errorf("Has of a fork of acme = %v, %v", has, err)
			}
		})
	}
	awaitVisibilityWaiters(t, h.Store, crowd)
	if has, err := forkPool(h, public, secret).View().For("other").Has(t.Context(), below); err != nil || !has {
		t.Errorf("Has of a fork of another owner = %v, %v", has, err)
	}
	if n := h.Store.Stats().VisibilityWalkCount; n != 1 {
		t.Errorf("%d walks have begun, want that of the other owner", n)
	}
	release()
	waiters.Wait()
}

// awaitVisibilityWaiters returns when count requests wait for visibility sets.
func awaitVisibilityWaiters(t *testing.T, s *odb.Store, count int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); s.VisibilityWaiterCount() != count; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, not %d", s.VisibilityWaiterCount(), count)
		}
	}
}

// Reads from refs and writes wait for no visibility set. While no walk can begin, a fork is read
// from its tips to the last blob, cloned, and written to. Requests by ID wait, for hidden and for
// absent objects alike. A walk ends when its last waiter has gone.
func TestForkReadsFromItsTipsWithoutWaiting(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	for name, fill := range fills {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			h := odbtest.NewPool(t, odb.Options{CoverCount: useBitmaps})
			fill(h, g)
			release := h.Store.HoldVisibilityWalks()
			fork := forkPool(h, public)
			v := fork.View()
			linked := v.Linked()
			for _, id := range g.IDs("", "rev-list", "--objects", "--no-object-names", public.String()) {
				_, _, err := linked.Read(ctx, id)
				h.Must(err)
			}
			for _, err := range revwalk.Walk(ctx, linked, revwalk.WalkOptions{Tips: []object.ID{public}}) {
				h.Must(err)
			}
			odbtest.CheckPack(t, g, v, packgen.Request{Wants: []object.ID{public}, OFSDelta: true})
			tip := g.Tips("refs/heads/main")[0]
			row, err := linked.Graph(ctx, tip)
			h.Must(err)
			q := v.NewQuarantine(ctx)
			blob, err := q.Write(ctx, object.TypeBlob, []byte("new in the fork"), object.ZeroID)
			h.Must(err)
			_, err = q.Write(ctx, object.TypeTree, odbtest.TreeOf(odbtest.FileEntry("new", blob)), row.Tree)
			h.Must(err)
			commit, err := q.Write(ctx, object.TypeCommit, odbtest.CommitOf(row.Tree, 1, tip), object.ZeroID)
			h.Must(err)
			b := kv.NewBatch()
			h.Must(q.Stage(ctx, b))
			_, err = h.Keys.Apply(ctx, b)
			h.Must(err)
			q.Settled(ctx)
			h.Must(q.Close())
			if has, err := fork.View().Has(ctx, commit); err != nil || !has {
				t.Errorf("the new commit: %v, %v", has, err)
			}
			if n := h.Store.VisibilityWaiterCount(); n != 0 {
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
			awaitVisibilityWaiters(t, h.Store, 3)
			cancel()
			waiters.Wait()
			release()
			h.Store.AwaitVisibility()
			checkReadable(t, g, fork, public)
			fork.Fsck()
		})
	}
}

// Forks with equal tips share one walk from end to end, and all who wait for any of them get an
// answer.
func TestVisibilityOfDuplicates(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	below := g.Tips("refs/heads/secret")[0] // is reached, and no tip
	h := odbtest.NewPool(t, odb.Options{})
	fills["one segment"](h, g)
	release := h.Store.HoldVisibilityWalks()
	forks := []*odbtest.Pool{forkPool(h, public, secret)}
	for range 4 {
		forks = append(forks, forkPool(h, public))
	}
	var waiters sync.WaitGroup
	for i, fork := range forks {
		v := fork.View()
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
	awaitVisibilityWaiters(t, h.Store, 2*len(forks))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := forks[1].View().Has(ended, below); !errors.Is(err, context.Canceled) {
		t.Errorf("who does not wait any more is told %v", err)
	}
	release()
	waiters.Wait()
	h.Store.AwaitVisibility()
	if n := h.Store.VisibilityWaiterCount(); n != 0 {
		t.Errorf("%d still wait", n)
	}
	if sets, _ := h.Store.KnownVisibilities(); sets != len(forks) {
		t.Errorf("%d visibility sets of %d forks", sets, len(forks))
	}
	if n := h.Store.Stats().VisibilityWalkCount; n != uint64(len(forks)) {
		t.Errorf("%d sets were found out of %d forks", n, len(forks))
	}
	for i, fork := range forks {
		if count, err := fork.Store.BorrowedLayerCount(t.Context(), fork.ID); err != nil || count > 0 != (i > 0) {
			t.Errorf("%d layers of fork %d are not its own, %v", count, i, err)
		}
		fork.Fsck()
	}
	checkReadable(t, g, forks[len(forks)-1], public)
}

// The deletion of a fork does not end the walks of others with equal tips.
func TestVisibilityOutlivesItsDuplicate(t *testing.T) {
	t.Parallel()
	g, public, _ := twoLines(t)
	h := odbtest.NewPool(t, odb.Options{})
	fills["one segment"](h, g)
	release := h.Store.HoldVisibilityWalks()
	first, second := forkPool(h, public), forkPool(h, public)
	dropPool(t, first)
	release()
	h.Store.AwaitVisibility()
	checkReadable(t, g, second, public)
	second.Fsck()
}

// A fork and its source that are deleted during the visibility walk are not corrupt.
func TestVisibilityOfPoolsThatGo(t *testing.T) {
	t.Parallel()
	g, public, _ := twoLines(t)
	other, keys := meddledPool(t, g, "one segment")
	release := other.Store.HoldVisibilityWalks()
	fork := forkPool(other, public)
	other.Store.AwaitSettled()
	v := fork.View()
	other.Store.ForgetManifest(fork.ID)
	keys.AfterManifest(fork.ID, func() {
		batch := kv.NewBatch()
		other.Store.DropPool(batch, fork.ID)
		other.Store.DropPool(batch, other.ID)
		_, err := keys.Apply(t.Context(), batch)
		swept, sweepErr := other.Store.Sweep(t.Context(), 0)
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
	awaitVisibilityWaiters(t, other.Store, 1)
	release()
	waiters.Wait()
	if n := other.Store.Stats().CorruptCount; n != 0 {
		t.Errorf("%d reads of a sound store are counted as corrupt", n)
	}
}

// The set of a fork grows from that of an earlier one although maintenance has replaced all layers
// of their source in between, and again.
func TestVisibilityGrowsAfterARewrite(t *testing.T) {
	t.Parallel()
	g, public, _ := twoLines(t)
	tips := append(g.IDs("", "rev-parse", "main~20", "main~8"), public)
	var more []object.ID // each makes a rewrite due
	for i := range byte(len(tips)) {
		more = append(more, g.IDs("", "rev-parse", g.Write("blob", []byte{i}))...)
	}
	for name, fill := range fills {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := odbtest.NewPool(t, odb.Options{})
			fill(h, g)
			for i, tip := range tips {
				fork := forkPool(h, tip)
				checkReadable(t, g, fork, tip)
				stats := h.Store.Stats()
				if got := stats.VisibilityWalkCount - stats.VisibilityGrownCount; got != 1 {
					t.Fatalf("%d walks of all, %d of all others, after %d rewrites", got, stats.VisibilityGrownCount, i)
				}
				fork.Fsck()
				h.Write(g, more[i:i+1])
				if done := h.CompactAll(false); done.LayerCount == 0 {
					t.Fatal("nothing was rewritten")
				}
				h.Fsck() // bitmaps that cover no beginning of the segments any more have gone
			}
		})
	}
}

// TestVisibilityGrowsDuringARewrite makes a fork after each batch of a rewrite, and asks it by ID.
// None of them walks the whole history.
func TestVisibilityGrowsDuringARewrite(t *testing.T) {
	t.Parallel()
	g, public, secret := twoLines(t)
	other, keys := meddledPool(t, g, "two segments with duplicates")
	parent := g.IDs("", "rev-parse", "refs/heads/main^")[0]
	forks := 0
	ask := func() {
		forks++
		v := forkPool(other, public).View()
		for id, want := range map[object.ID]bool{parent: true, secret: false} {
			if has, err := v.Has(t.Context(), id); err != nil || has != want {
				t.Errorf("fork %d has %s: %v, %v", forks, id, has, err)
			}
		}
		stats := other.Store.Stats()
		if n := stats.VisibilityWalkCount - stats.VisibilityGrownCount; n != 1 {
			t.Errorf("%d walks of the whole history after fork %d", n, forks)
		}
	}
	ask()
	keys.AfterBatches(ask)
	done, err := repack.Compact(t.Context(), other.Store, other.ID, repack.CompactOptions{})
	other.Must(err)
	keys.AfterBatches(nil)
	if ask(); done.LayerCount < 2 || forks < 4 {
		t.Errorf("%d layers were rewritten, %d forks made", done.LayerCount, forks)
	}
	other.Fsck()
}

// Visibility sets keep to their part of the cache, tips included, and those that were used last
// stay.
func TestVisibilitySetsKeepToTheirBudget(t *testing.T) {
	t.Parallel()
	const (
		budget   = 128 << 10
		tipCount = 900
		forks    = 12 // of 18,000 bytes of tips each
	)
	w := newWorld(t, odb.Options{CacheBytes: 8 * budget})
	d := w.Draft()
	d.Write(object.TypeBlob, []byte("hidden"), object.ZeroID)
	var tips []object.ID
	for i := range uint64(tipCount) {
		tips = append(tips, d.Write(object.TypeBlob, binary.BigEndian.AppendUint64(nil, i), object.ZeroID))
	}
	d.Commit()
	// Each reached object takes one bit.
	_, err := repack.Compact(t.Context(), w.Store, w.Pool, repack.CompactOptions{All: true})
	w.Must(err)
	base, first := w.Pool, odb.PoolID{}
	for i := range forks {
		pool := w.forkOf(tips[i:]...)
		if i == 0 {
			first = pool
		}
		for _, w.Pool = range []odb.PoolID{first, pool} {
			w.With(func(v *odb.View) {
				if has, err := v.Has(t.Context(), object.ID{1}); err != nil || has {
					t.Errorf("what is not there: %v, %v", has, err)
				}
				if has, err := v.Has(t.Context(), tips[i]); err != nil || !has {
					t.Errorf("a tip of fork %d: %v, %v", i, has, err)
				}
			})
		}
		w.Pool = base
		if _, size := w.Store.KnownVisibilities(); size < object.IDSize*(tipCount-i) || size > budget {
			t.Errorf("%d bytes after fork %d", size, i)
		}
	}
	if sets, _ := w.Store.KnownVisibilities(); sets > budget/(object.IDSize*(tipCount-forks)) {
		t.Errorf("%d visibility sets are kept", sets)
	}
	if n := w.Store.Stats().VisibilityWalkCount; n != forks {
		t.Errorf("%d sets were found out of %d forks", n, forks)
	}
}
