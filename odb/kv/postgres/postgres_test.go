package postgres_test

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/kv/kvtest"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// patient is a deadline that no machine is too slow for.
const patient = 2 * time.Minute

// open opens a store on the database of a URL; the caller closes it.
func open(tb testing.TB, options postgres.Options) *postgres.Store {
	tb.Helper()
	if options.Deadline == 0 {
		options.Deadline = patient
	}
	options.Logger = slog.New(slog.DiscardHandler)
	store, err := postgres.Open(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	return store
}

// openHere opens a store that is closed with the test.
func openHere(tb testing.TB, options postgres.Options) *postgres.Store {
	tb.Helper()
	store := open(tb, options)
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return store
}

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
