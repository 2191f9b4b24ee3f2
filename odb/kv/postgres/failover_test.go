package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// TestFailover lets a primary end while writers are at work, and promotes its synchronous standby.
// The store has both in its URL. Nothing that was answered is lost, and nothing is refused.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := postgrestest.Start(t)
	database := primary.Database(t)
	standby := primary.Standby(t)
	store := openHere(t, postgres.Options{URL: postgrestest.Hosts(database, primary, standby)})
	const writers, steps = 6, 60
	var group sync.WaitGroup
	half := make(chan struct{}, writers)
	for writer := range writers {
		group.Go(func() {
			head := fmt.Appendf(nil, "head/%d", writer)
			for i := range steps {
				if i == steps/2 {
					half <- struct{}{}
				}
				batch := batchOf("", fmt.Sprintf("step/%d/%d", writer, i))
				if i == 0 {
					batch.RequireAbsent(head)
				} else {
					batch.Require(head, fmt.Append(nil, i-1))
				}
				batch.Put(head, fmt.Append(nil, i))
				if _, err := store.Apply(t.Context(), batch); err != nil {
					t.Errorf("writer %d, step %d: %v", writer, i, err)
					return
				}
			}
		})
	}
	<-half
	primary.Crash(t)
	standby.Promote(t)
	group.Wait()
	if found := count(t, store, "step/"); found != writers*steps {
		t.Errorf("%d steps, want %d", found, writers*steps)
	}
}

// TestRewind promotes a standby that lacks the last commits: who asked for it is told before a read
// shows that they are gone. A crash of a server that comes back tells nobody.
func TestRewind(t *testing.T) {
	t.Parallel()
	primary := postgrestest.Start(t)
	database := primary.Database(t)
	standby := primary.Standby(t)
	store := openHere(t, postgres.Options{URL: postgrestest.Hosts(database, primary, standby)})
	var told atomic.Int32
	store.OnRewind(func() { told.Add(1) })
	apply(t, store, batchOf("1", "kept"))
	primary.Crash(t)
	primary.Restart(t)
	apply(t, store, batchOf("1", "kept too"))
	if told.Load() != 0 {
		t.Error("told of a crash")
	}
	standby.Crash(t)
	primary.Configure(t, "synchronous_standby_names = ''")
	apply(t, store, batchOf("1", "lost"))
	primary.Crash(t)
	standby.Restart(t)
	standby.Promote(t)
	if _, err := store.Get(t.Context(), []byte("lost")); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("what is lost: %v", err)
	}
	if told.Load() != 1 || store.Rewinds() != 1 {
		t.Errorf("told %d times, %d rewinds", told.Load(), store.Rewinds())
	}
	for before, want := range []error{kv.ErrConflict, nil} {
		batch := batchOf("2", "after")
		batch.RequireRewinds(uint64(before))
		if _, err := store.Apply(t.Context(), batch); !errors.Is(err, want) {
			t.Errorf("a batch of %d rewinds: %v", before, err)
		}
	}
	if _, err := store.Get(t.Context(), []byte("kept too")); err != nil {
		t.Error(err)
	}
}

// TestStandbyAway cancels, in the database, a commit that waits for the standby. The database then
// calls it done, with a warning; the store goes on to wait.
func TestStandbyAway(t *testing.T) {
	t.Parallel()
	primary := postgrestest.Start(t)
	database := primary.Database(t)
	standby := primary.Standby(t)
	store := openHere(t, postgres.Options{URL: primary.URL(database)})
	apply(t, store, batchOf("1", "before"))
	standby.Crash(t)
	applied := make(chan error, 1)
	go func() {
		_, err := store.Apply(t.Context(), batchOf("1", "marker"))
		applied <- err
	}()
	conn, err := pgx.Connect(t.Context(), primary.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	const waiting = "pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'packhorse'"
	for cancelled := 0; cancelled == 0; {
		err := conn.QueryRow(t.Context(), "SELECT count(pg_cancel_backend(pid)) FROM "+waiting).Scan(&cancelled)
		if err != nil {
			t.Fatal(err)
		}
	}
	// Who waits now wants to ask for the outcome, over a new connection with a new fence.
	for asking := 0; asking == 0; {
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+waiting+" AND query LIKE '%kv_fence (id%'").Scan(&asking)
		if err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-applied:
		t.Errorf("answered without the standby: %v", err)
	default:
	}
	standby.Restart(t)
	if err := <-applied; err != nil {
		t.Error(err)
	}
	want(t, store, "marker", "1")
	if m := store.Metrics(); m.Happened != 1 {
		t.Errorf("got %+v", m)
	}
}

// TestStandbyAwayForLong has writers that find no end while the standby is away. Readers go on, and
// the database does not get ever more connections.
func TestStandbyAwayForLong(t *testing.T) {
	t.Parallel()
	primary := postgrestest.Start(t)
	database := primary.Database(t)
	standby := primary.Standby(t)
	const conns = 4
	store := openHere(t, postgres.Options{URL: primary.URL(database), Deadline: short, Conns: conns})
	standby.Crash(t)
	keys := 0
	for range 3 * conns {
		_, err := store.Apply(t.Context(), batchOf("1", fmt.Sprint("key/", keys)))
		keys++
		if !errors.Is(err, kv.ErrUnknown) && !errors.Is(err, kv.ErrUnavailable) || isOfDriver(err) {
			t.Errorf("got %v", err)
		}
		want(t, store, "never", "")
	}
	conn, err := pgx.Connect(t.Context(), primary.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	found := 0
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'packhorse'").Scan(&found)
	if err != nil || found > 2*conns {
		t.Errorf("%d connections, at most %d are ours: %v", found, 2*conns, err)
	}
	standby.Restart(t)
	for err = kv.ErrUnavailable; err != nil; keys++ {
		_, err = store.Apply(t.Context(), batchOf("1", fmt.Sprint("key/", keys)))
		if err != nil && !errors.Is(err, kv.ErrUnknown) && !errors.Is(err, kv.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

// TestFencedOff lets all connections grow old in the database, and sweeps them. The store takes new
// ones.
func TestFencedOff(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	store := openHere(t, postgres.Options{URL: database})
	apply(t, store, batchOf("1", "a"))
	if err := store.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, store, batchOf("1", "b"))
	if m := store.Metrics(); m.Retries != 0 {
		t.Errorf("a young fence is swept: %+v", m)
	}
	postgrestest.Exec(t, database, "UPDATE kv_fence SET used = used - interval '4 hours'")
	if err := store.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, store, batchOf("1", "c"))
	want(t, store, "c", "1")
	if m := store.Metrics(); m.Retries != 1 || m.Happened+m.Vanished != 0 {
		t.Errorf("got %+v", m)
	}
}
