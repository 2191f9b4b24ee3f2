package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// undurable is a store of keys whose batches are not durable until gate is closed, if there is one.
type undurable struct {
	kv.Store
	applied atomic.Int64
	gate    chan struct{}
}

type undurableCommit struct {
	kv.Commit
	gate <-chan struct{}
}

func (s *undurable) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	commit, err := s.Store.Apply(ctx, batch)
	s.applied.Add(1)
	return undurableCommit{commit, s.gate}, err
}

func (c undurableCommit) Wait(ctx context.Context) error {
	if c.gate != nil {
		<-c.gate
	}
	return c.Commit.Wait(ctx)
}

// While requests of other organizations are served, a creation begins when the one before it in
// its organization is durable. Otherwise it does not wait for that.
func TestCreationsWaitForOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		since time.Duration // the last request of another organization
		want  int64         // creations that are applied while none is durable
	}{
		"shared": {time.Millisecond, 1},
		"alone":  {time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				keys, files, shut := odbtest.OpenStores(t, vfs.NewMem())
				defer shut()
				store := &undurable{Store: keys}
				host := enginetest.OpenOver(t, store, files, engine.Config{})
				defer func() {
					if err := host.Close(context.Background()); err != nil {
						t.Error(err)
					}
				}()
				enginetest.Create(t, host, "first")
				store.gate = make(chan struct{})
				store.applied.Store(0)
				processors := fair.NewProcessors(2)
				other := processors.Account(fair.Tenant{Org: "other"}, 0)
				if err := other.Begin(t.Context(), true, 0); err != nil {
					t.Fatal(err)
				}
				other.End()
				time.Sleep(test.since)

				var all sync.WaitGroup
				for i := range 3 {
					all.Go(func() {
						account := processors.Account(fair.Tenant{Org: enginetest.Org}, 0)
						if err := account.Begin(t.Context(), true, 0); err != nil {
							t.Error(err)
						}
						defer account.End()
						_, err := host.CreateRepository(fair.With(t.Context(), account), engine.Actor{Org: enginetest.Org},
							engine.CreateRequest{Name: fmt.Sprint("r", i)})
						if err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				if got := store.applied.Load(); got != test.want {
					t.Errorf("%d creations, want %d", got, test.want)
				}
				close(store.gate)
				all.Wait()
				if got := store.applied.Load(); got != 3 {
					t.Errorf("%d creations at the end", got)
				}
			})
		})
	}
}
