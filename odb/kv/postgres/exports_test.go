package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// export makes an export and closes it with the test.
func export(t *testing.T, store *postgres.Store) kv.Export {
	t.Helper()
	made, err := store.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
	return made
}

// countRows walks all rows of a reader.
func countRows(t *testing.T, reader kv.Reader) (rows int, err error) {
	t.Helper()
	for _, err := range reader.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			return rows, err
		}
		rows++
	}
	return rows, nil
}

// TestExportHasItsOwnConnection opens more snapshots than a store has connections for, on a server
// that ends transactions which rest: neither ends the export.
func TestExportHasItsOwnConnection(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	postgrestest.Exec(t, url, `DO $$ BEGIN EXECUTE format(
		'ALTER DATABASE %I SET idle_in_transaction_session_timeout = 200', current_database()); END $$`)
	store := openHere(t, postgres.Options{URL: url, Conns: 4})
	apply(t, store, batchOf("1", "a"))
	exported := []kv.Export{export(t, store), export(t, store)}
	apply(t, store, batchOf("2", "b"))
	var last kv.Snapshot
	for range 3 {
		next, err := store.Snapshot(t.Context()) // the one before is idle for long enough, and ends
		if err != nil {
			t.Fatal(err)
		}
		last = next
	}
	for deadline := time.Now().Add(time.Minute); ; { // until the server has ended its transaction
		if _, err := last.Get(t.Context(), []byte("a")); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server ends no transactions")
		}
		time.Sleep(300 * time.Millisecond)
	}
	for _, e := range exported {
		if rows, err := countRows(t, e); rows != 1 || err != nil {
			t.Errorf("an export has %d rows, %v", rows, err)
		}
	}
	if rows, err := countRows(t, store); rows != 2 || err != nil {
		t.Errorf("the store has %d rows, %v", rows, err)
	}
}

// TestLostExport cuts the connection of an export while it is read: the walk fails, and no other
// instant is read in the place of the first. The store goes on.
func TestLostExport(t *testing.T) {
	t.Parallel()
	proxy, url := postgrestest.Proxied(t)
	store := openHere(t, postgres.Options{URL: url})
	batch := kv.NewBatch()
	for i := range 3000 {
		batch.Put(fmt.Append(nil, "key ", i), []byte("value"))
	}
	apply(t, store, batch)
	exported := export(t, store)
	rows, failed := 0, error(nil)
	for _, err := range exported.Scan(t.Context(), kv.ScanOptions{}) {
		if failed = err; err != nil {
			break
		}
		if rows++; rows == 100 {
			proxy.CutAll()
		}
	}
	if rows >= 3000 || !errors.Is(failed, kv.ErrUnavailable) || !strings.Contains(failed.Error(), "its connection is lost") {
		t.Errorf("after %d rows: %v", rows, failed)
	}
	for range 2 {
		if _, err := exported.Get(t.Context(), []byte("key 1")); !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("the lost export goes on: %v", err)
		}
	}
	if rows, err := countRows(t, store); rows != 3000 || err != nil {
		t.Errorf("the store has %d rows, %v", rows, err)
	}
	if open := store.Stats().Snapshots; open != 0 {
		t.Errorf("%d exports are open", open)
	}
}

// TestExportEndsWithItsStore closes a store under an export.
func TestExportEndsWithItsStore(t *testing.T) {
	t.Parallel()
	store := open(t, postgres.Options{URL: postgrestest.Database(t)})
	exported := export(t, store)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if _, err := exported.Get(t.Context(), []byte("a")); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("get: %v", err)
	}
}
