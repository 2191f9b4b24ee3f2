package postgres_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/kv/kvtest"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// crashes makes stores whose cluster can crash: those of the tests that want it.
type crashes struct {
	mu       sync.Mutex // guards clusters
	clusters map[kv.Store]*postgrestest.Cluster
}

func (c *crashes) open(t *testing.T, age time.Duration) kv.Store {
	t.Helper()
	if !strings.Contains(t.Name(), "/Crash") {
		return open(t, postgres.Options{URL: postgrestest.Database(t), SnapshotAge: age})
	}
	cluster := postgrestest.Start(t)
	store := open(t, postgres.Options{URL: cluster.URL(cluster.Database(t)), SnapshotAge: age})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clusters[store] = cluster
	return store
}

// crash stops the server at once and starts it again. The store lives through it.
func (c *crashes) crash(t *testing.T, store kv.Store) kv.Store {
	t.Helper()
	c.mu.Lock()
	cluster := c.clusters[store]
	c.mu.Unlock()
	cluster.Crash(t)
	cluster.Restart(t)
	return store
}

func TestConformance(t *testing.T) {
	t.Parallel()
	c := &crashes{clusters: make(map[kv.Store]*postgrestest.Cluster)}
	kvtest.Run(t, kvtest.Harness{Open: c.open, Crash: c.crash})
}

// TestConformanceOfTwo has two stores over one database, as two servers have; calls go to one and
// the other in turns.
func TestConformanceOfTwo(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, kvtest.Harness{Open: func(t *testing.T, age time.Duration) kv.Store {
		t.Helper()
		options := postgres.Options{URL: postgrestest.Database(t), SnapshotAge: age}
		return &both{stores: [2]kv.Store{open(t, options), open(t, options)}}
	}})
}

// TestConformanceBehindCuts cuts connections at random places. Snapshots end with theirs, so the
// tests that need one are left out.
func TestConformanceBehindCuts(t *testing.T) {
	t.Parallel()
	wanted := []string{"/Linearizable", "/Counter", "/BatchOrder", "/Preconditions", "/ReadInstant"}
	seed := atomic.Uint64{}
	kvtest.Run(t, kvtest.Harness{Open: func(t *testing.T, age time.Duration) kv.Store {
		t.Helper()
		isWanted := false
		for _, name := range wanted {
			isWanted = isWanted || strings.Contains(t.Name(), name)
		}
		if !isWanted {
			t.Skip("has no use for cuts")
		}
		proxy, url := postgrestest.Proxied(t)
		proxy.Delay(100 * time.Microsecond)
		proxy.CutRandomly(seed.Add(1))
		return open(t, postgres.Options{URL: url, SnapshotAge: age})
	}})
}

// both is a store over two.
type both struct {
	stores [2]kv.Store
	turn   atomic.Uint64
}

func (b *both) next() kv.Store { return b.stores[b.turn.Add(1)%2] }

func (b *both) Get(ctx context.Context, key []byte) ([]byte, error) { return b.next().Get(ctx, key) }

func (b *both) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return b.next().Scan(ctx, options)
}

func (b *both) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	return b.next().Read(ctx, set)
}

func (b *both) Snapshot(ctx context.Context) (kv.Snapshot, error) { return b.next().Snapshot(ctx) }

func (b *both) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	return b.next().Apply(ctx, batch)
}

func (b *both) WaitDurable(ctx context.Context, key []byte) error {
	return b.next().WaitDurable(ctx, key)
}

func (b *both) Stats() kv.Stats {
	sum := b.stores[0].Stats()
	sum.Snapshots += b.stores[1].Stats().Snapshots
	return sum
}

func (b *both) Close() error {
	first, second := b.stores[0].Close(), b.stores[1].Close()
	if errors.Is(first, kv.ErrClosed) && errors.Is(second, kv.ErrClosed) {
		return kv.ErrClosed
	}
	return errors.Join(first, second)
}
