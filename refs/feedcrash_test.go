package refs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/odbtest"
	"packhorse/refs"
)

// Power fails at random instants under writers that also create and delete repositories, and under
// readers. A reader that goes on afterwards has heard of every event of every journal once.
func TestFeedPowerLoss(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it crashes the file system of the keys")
	rounds := 40
	if testing.Short() {
		rounds = 6
	}
	for seed := range uint64(rounds) {
		feedPowerLoss(t, seed)
	}
}

// follower is a reader of a feed, as far as it got before the power failed.
type follower struct {
	at    refs.FeedCursor
	heard map[refs.RepoID][]string
	ended map[refs.RepoID]bool
}

func (f *follower) take(events []refs.FeedEvent) {
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case refs.FeedDeleted:
			f.ended[e.Repo] = true
		case refs.FeedRef:
			f.heard[e.Repo] = append(f.heard[e.Repo], fmt.Sprintf("%d.%d", e.Sequence, e.Index))
		default: // a creation
		}
	}
}

func feedPowerLoss(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(6, seed))
	fs := vfs.NewCrashableMem()
	keys := openKVOn(t, fs)
	store := refs.Open(keys, refs.Options{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var hearing sync.Mutex // held while a reader takes a page, and while the power fails
	var commits atomic.Int64
	crash, crashed := int64(20+random.IntN(150)), make(chan struct{})
	sizes := []int{1 + random.IntN(20), 1 + random.IntN(20)} // random is a writer's from now on
	var survived *vfs.MemFS
	all := make(map[refs.RepoID]bool) // guarded by hearing
	var wg sync.WaitGroup
	for writer := range 6 {
		mine := rand.New(rand.NewPCG(seed, uint64(writer)))
		wg.Go(func() {
			var repo refs.RepoID
			for n := 1; ctx.Err() == nil; n++ {
				if n%10 == 1 {
					repo, _ = found(t, store, mine.IntN(3))
					hearing.Lock()
					all[repo] = true
					hearing.Unlock()
				}
				pairs := []any{"refs/heads/a", n, "refs/heads/b", n}
				do := setter(pairs[:2+2*mine.IntN(2)]...)
				if n%10 == 0 {
					do = drop
				}
				if _, err := store.Update(t.Context(), repo, refs.Change{Org: "acme"}, do); err != nil {
					t.Error(err)
					return
				}
				if commits.Add(1) == crash {
					hearing.Lock()
					survived = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: random})
					close(crashed)
				}
			}
		})
	}
	followers := make([]*follower, len(sizes))
	for i := range followers {
		f := &follower{heard: map[refs.RepoID][]string{}, ended: map[refs.RepoID]bool{}}
		followers[i] = f
		wg.Go(func() { follow(ctx, t, store, f, sizes[i], &hearing, crashed) })
	}
	<-crashed
	hearing.Unlock()
	stop()
	wg.Wait()

	keys = openKVOn(t, survived)
	store = refs.Open(keys, refs.Options{})
	repo, _ := found(t, store, 0)
	tell(t, store, "acme", repo, "refs/heads/after", 1)
	all[repo] = true
	for i, f := range followers {
		before := len(f.heard)
		f.take(feedOf(t, store, "acme", f.at, 50))
		for repo := range all {
			_, err := store.Head(t.Context(), repo)
			if errors.Is(err, refs.ErrRepositoryNotFound) {
				continue // it was never there for good, or has been deleted
			}
			var want []string
			page, eventsErr := store.Events(t.Context(), repo, 0, refs.EventsMax)
			if err := errors.Join(err, eventsErr); err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Entries {
				want = append(want, fmt.Sprintf("%d.%d", e.Sequence, e.Index))
			}
			if !slices.Equal(f.heard[repo], want) || f.ended[repo] {
				t.Fatalf("seed %d: reader %d knew %d repositories; of %s it heard %v, deleted %t, and the journal is %v",
					seed, i, before, repo, f.heard[repo], f.ended[repo], want)
			}
		}
	}
	if err := keys.Close(); err != nil {
		t.Error(err)
	}
}

// follow reads a feed until the power fails.
func follow(
	ctx context.Context, t *testing.T, store *refs.Store, f *follower, size int, hearing *sync.Mutex,
	crashed <-chan struct{},
) {
	t.Helper()
	for {
		page, err := store.Feed(ctx, "acme", f.at, size)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		hearing.Lock()
		select {
		case <-crashed:
			hearing.Unlock()
			return
		default:
		}
		f.take(page.Events)
		f.at = page.Next
		hearing.Unlock()
		if !page.More && store.AwaitFeed(ctx, "acme", f.at) != nil {
			return
		}
	}
}
