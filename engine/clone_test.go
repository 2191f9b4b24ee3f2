package engine_test

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the trailer of a packfile is a SHA-1
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/clonecache"
	"packhorse/engine/enginetest"
	"packhorse/pack/object"
)

// openCloning opens a host that caches every pack.
func openCloning(t *testing.T) (*engine.Host, *clonecache.Cache) {
	t.Helper()
	fs := vfs.NewMem()
	clones, err := clonecache.Open("cache", clonecache.Options{FS: fs, CostMin: -1})
	if err != nil {
		t.Fatal(err)
	}
	return openStill(t, fs, clones), clones
}

// openStill opens a host whose clock stands still, so that equal commits have equal ids.
func openStill(t *testing.T, fs vfs.FS, clones *clonecache.Cache) *engine.Host {
	t.Helper()
	now := func() time.Time { return time.Unix(1_700_000_000, 0) }
	host, shut := enginetest.OpenOn(t, fs, engine.Config{Clones: clones, Now: now})
	t.Cleanup(shut)
	return host
}

// clone fetches a pack, whose trailer it checks.
func clone(repo *engine.Repository, request engine.FetchRequest, o engine.SendOptions) ([]byte, error) {
	return cloneWhile(context.Background(), repo, request, o)
}

// cloneWhile is clone until ctx ends.
func cloneWhile(
	ctx context.Context, repo *engine.Repository, request engine.FetchRequest, o engine.SendOptions,
) ([]byte, error) {
	f, err := repo.Fetch(ctx, request)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var pack bytes.Buffer
	if err := f.Send(ctx, &pack, o); err != nil {
		return nil, err
	}
	end := pack.Len() - sha1.Size
	if sum := sha1.Sum(pack.Bytes()[:end]); !bytes.Equal(sum[:], pack.Bytes()[end:]) { //nolint:gosec // as above
		return nil, errors.New("the pack's trailer is wrong")
	}
	return pack.Bytes(), nil
}

// seedHistory commits count times and returns the commits, the first one first.
func seedHistory(t *testing.T, repo *engine.Repository, count int) []object.ID {
	t.Helper()
	var commits []object.ID
	for i := range count {
		result, err := upload(repo, acme, main,
			change{path: fmt.Sprint("dir/f", i%5), content: strings.Repeat(fmt.Sprintln(i), 200)})
		if err != nil {
			t.Fatal(err)
		}
		commits = append(commits, result.New)
	}
	return commits
}

// TestClonesAreShared requests several packs again and again: each is generated once, and equals
// the pack of a host without a cache.
func TestClonesAreShared(t *testing.T) {
	t.Parallel()
	host, clones := openCloning(t)
	repo := enginetest.Create(t, host, "r")
	commits := seedHistory(t, repo, 20)
	plain := enginetest.Create(t, openStill(t, vfs.NewMem(), nil), "r")
	tip := commits[len(commits)-1:]
	if again := seedHistory(t, plain, 20); !slices.Equal(again, commits) {
		t.Fatalf("two equal histories end in %s and %s", tip[0], again[19])
	}
	requests := map[string]engine.FetchRequest{
		"full":      {Wants: tip, OFSDelta: true},
		"no offset": {Wants: tip},
		"depth":     {Wants: tip, OFSDelta: true, Depth: 1},
		"filter":    {Wants: tip, OFSDelta: true, Filter: "blob:none"},
		"haves":     {Wants: tip, OFSDelta: true, Haves: commits[:5]},
		"thin":      {Wants: tip, OFSDelta: true, Haves: commits[:5], Thin: true},
		"tags":      {Wants: tip, OFSDelta: true, IncludeTag: true, Haves: commits[:1]},
	}
	for name, request := range requests {
		before := clones.Stats().Generated
		want, err := clone(plain, request, engine.SendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 3 {
					got, err := clone(repo, request, engine.SendOptions{Progress: func(string) {}})
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
					}
				}
			})
		}
		group.Wait()
		if count := clones.Stats().Generated - before; count != 1 {
			t.Errorf("%s: generated %d times", name, count)
		}
	}
}

// TestClonesFollowRefs moves and deletes the refs of a cached clone.
func TestClonesFollowRefs(t *testing.T) {
	t.Parallel()
	host, clones := openCloning(t)
	repo := enginetest.Create(t, host, "r")
	old := seedHistory(t, repo, 3)[2]
	request := engine.FetchRequest{WantRefs: []string{"refs/heads/main"}, OFSDelta: true}
	first, err := clone(repo, request, engine.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seedHistory(t, repo, 1)
	second, err := clone(repo, request, engine.SendOptions{})
	if err != nil || bytes.Equal(first, second) {
		t.Errorf("after a commit the clone is the same, %v", err)
	}
	again, err := clone(repo, engine.FetchRequest{Wants: []object.ID{old}, OFSDelta: true}, engine.SendOptions{})
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("the old tip gives another pack, %v", err)
	}
	if s := clones.Stats(); s.Generated != 2 {
		t.Errorf("%+v", s)
	}
	if _, err := host.DeleteRepository(t.Context(), acme, "r"); err != nil {
		t.Fatal(err)
	}
	if _, err := clone(repo, request, engine.SendOptions{}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a deleted repository's clone: %v", err)
	}
	other := enginetest.Create(t, host, "r")
	if _, err := clone(other, engine.FetchRequest{Wants: []object.ID{old}}, engine.SendOptions{}); !errors.Is(err,
		engine.ErrNotFound) {
		t.Errorf("the next repository of the name gives it away: %v", err)
	}
}

// TestCloneWaitsForSlot fails a clone for want of a slot, and holds one while the pack is planned
// only.
func TestCloneWaitsForSlot(t *testing.T) {
	t.Parallel()
	host, _ := openCloning(t)
	repo := enginetest.Create(t, host, "r")
	tip := seedHistory(t, repo, 3)[2:]
	busy := errors.New("busy")
	_, err := clone(repo, engine.FetchRequest{Wants: tip}, engine.SendOptions{Slot: func(context.Context) (func(), error) {
		return nil, busy
	}})
	if !errors.Is(err, busy) {
		t.Errorf("got %v, want %v", err, busy)
	}
	request := engine.FetchRequest{Wants: tip}
	taken, given := 0, 0
	slot := func(context.Context) (func(), error) {
		taken++
		return func() { given++ }, nil
	}
	for range 2 {
		if _, err := clone(repo, request, engine.SendOptions{Slot: slot}); err != nil {
			t.Fatal(err)
		}
	}
	if taken != 1 || given != 1 {
		t.Errorf("took %d slots and gave back %d, want one", taken, given)
	}
}

// TestClonesWaitForOnePlan requests a pack many times while it is planned. A pack that pays is
// planned and generated once. Of one that does not, which is a whole segment, each request makes
// its own.
func TestClonesWaitForOnePlan(t *testing.T) {
	t.Parallel()
	const count = 8
	for name, pays := range map[string]bool{"pays": true, "whole segment": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, clones := openCloning(t)
			repo := enginetest.Create(t, host, "r")
			request := engine.FetchRequest{Wants: seedHistory(t, repo, 5)[4:], OFSDelta: true}
			plansMax, generated := int32(1), uint64(1)
			if !pays {
				for _, err := range host.Maintain(t.Context(), engine.MaintainOptions{All: true}) {
					must(t, err)
				}
				plansMax, generated = count, 0
			}
			var plans atomic.Int32
			open := make(chan struct{})
			slot := func(context.Context) (func(), error) { //nolint:unparam // it is a SendOptions.Slot
				plans.Add(1)
				<-open
				return func() {}, nil
			}
			packs := make([][]byte, count)
			var group sync.WaitGroup
			for i := range packs {
				group.Go(func() {
					var err error
					if packs[i], err = clone(repo, request, engine.SendOptions{Slot: slot}); err != nil {
						t.Error(err)
					}
				})
			}
			eventually(t, "the others wait", func() bool { return clones.Stats().Waiting == count-1 })
			if n := plans.Load(); n != 1 {
				t.Errorf("%d plan at once", n)
			}
			close(open)
			group.Wait()
			for _, pack := range packs {
				if !bytes.Equal(pack, packs[0]) {
					t.Errorf("packs of %d and %d bytes", len(pack), len(packs[0]))
				}
			}
			if s := clones.Stats(); plans.Load() != plansMax || s.Generated != generated {
				t.Errorf("%d plans, %+v", plans.Load(), s)
			}
		})
	}
}

// TestCloneTakesOver fails the request that plans the pack: one of those that wait plans it.
func TestCloneTakesOver(t *testing.T) {
	t.Parallel()
	const count = 4
	busy := errors.New("busy")
	for name, refused := range map[string]bool{"cancelled": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, clones := openCloning(t)
			repo := enginetest.Create(t, host, "r")
			request := engine.FetchRequest{Wants: seedHistory(t, repo, 5)[4:], OFSDelta: true}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			taken, refuse := make(chan struct{}), make(chan struct{})
			failing := func(ctx context.Context) (func(), error) { //nolint:unparam // as above
				close(taken)
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-refuse:
					return nil, busy
				}
			}
			var group sync.WaitGroup
			group.Go(func() {
				want := context.Canceled
				if refused {
					want = busy
				}
				if _, err := cloneWhile(ctx, repo, request, engine.SendOptions{Slot: failing}); !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			})
			<-taken
			var plans atomic.Int32
			slot := func(context.Context) (func(), error) { //nolint:unparam // as above
				plans.Add(1)
				return func() {}, nil
			}
			for range count {
				group.Go(func() {
					if _, err := clone(repo, request, engine.SendOptions{Slot: slot}); err != nil {
						t.Error(err)
					}
				})
			}
			eventually(t, "the others wait", func() bool { return clones.Stats().Waiting == count })
			if refused {
				close(refuse)
			} else {
				cancel()
			}
			group.Wait()
			if s := clones.Stats(); plans.Load() != 1 || s.Generated != 1 {
				t.Errorf("%d plans, %+v", plans.Load(), s)
			}
		})
	}
}
