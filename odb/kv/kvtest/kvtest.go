// Package kvtest is the conformance suite of kv.Store: every implementation passes [Run].
//
// # Crashes and faults in other tests
//
// Both stores take their file system as an option, so a test gives them one and the same:
//
//	disk := vfs.NewCrashableMem()                          // of pebble/v2/vfs
//	faulty := errorfs.Wrap(disk, errorfs.InjectorFunc(...)) // of pebble/v2/vfs/errorfs; called before each operation, may sleep or fail it
//	keys, err := kv.OpenPebble("data/kv", kv.PebbleOptions{FS: faulty, OnFatal: ...})
//	files, err := file.OpenDir("data/files", file.DirOptions{FS: faulty})
//	after := disk.CrashClone(vfs.CrashCloneCfg{...})       // what a loss of power leaves at this instant; open new stores on it
//
// The zero configuration keeps only what was synced; with UnsyncedDataPercent and RNG some of the
// rest survives too, so that a test meets torn ends. TestStoresCrash of package odb does all of
// this. A failed sync of the log calls OnFatal; when that returns, the store answers with
// kv.ErrFailed, and its Close and calls that were under way may hang as those of a dead process do.
package kvtest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"packhorse/odb/kv"
)

// Harness makes the stores under test.
type Harness struct {
	// Open returns a new, empty store, whose snapshots live for snapshotAge if it can be set, else for
	// [kv.SnapshotAgeMax]. The suite closes it.
	Open func(t *testing.T, snapshotAge time.Duration) kv.Store
	// Crash cuts the power of a store that Open or Crash returned and returns the store after the
	// restart. It is optional; without it the guarantees about crashes are not tested.
	Crash func(t *testing.T, store kv.Store) kv.Store
}

// Run tests every promise of kv.Store.
func Run(t *testing.T, h Harness) {
	t.Helper()
	tests := map[string]func(*testing.T, Harness){
		"Values":               testValues,
		"BatchOrder":           testBatchOrder,
		"OwnedMemory":          testOwnedMemory,
		"Preconditions":        testPreconditions,
		"RefusedLeavesNothing": testRefusedLeavesNothing,
		"Limits":               testLimits,
		"Scan":                 testScan,
		"ScanModel":            testScanModel,
		"ScanWhileWriting":     testScanWhileWriting,
		"Read":                 testRead,
		"ReadPages":            testReadPages,
		"ReadInstant":          testReadInstant,
		"SnapshotIsolation":    testSnapshotIsolation,
		"SnapshotExpiry":       testSnapshotExpiry,
		"SnapshotClose":        testSnapshotClose,
		"Export":               testExport,
		"Counter":              testCounter,
		"Transfers":            testTransfers,
		"Linearizable":         testLinearizable,
		"WaitDurable":          testWaitDurable,
		"Crash":                testCrash,
		"CrashWaitDurable":     testCrashWaitDurable,
		"Context":              testContext,
		"Closed":               testClosed,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h)
		})
	}
}

// open returns a store that is closed when the test ends.
func (h Harness) open(t *testing.T) kv.Store {
	t.Helper()
	store := h.Open(t, kv.SnapshotAgeMax)
	closeAtEnd(t, store)
	return store
}

// closeAtEnd closes a store when the test ends, unless the test has.
func closeAtEnd(t *testing.T, store kv.Store) {
	t.Helper()
	t.Cleanup(func() {
		if err := store.Close(); err != nil && !errors.Is(err, kv.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
}

// apply applies the batch that build fills and waits until it is durable.
func apply(t *testing.T, store kv.Store, build func(*kv.Batch)) {
	t.Helper()
	batch := kv.NewBatch()
	build(batch)
	commit, err := store.Apply(t.Context(), batch)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	if err := commit.Wait(t.Context()); err != nil {
		t.Fatalf("wait: %v", err)
	}
}

// want checks the value of a key; an empty string stands for none.
func want(t *testing.T, reader kv.Reader, key, value string) {
	t.Helper()
	got, err := reader.Get(t.Context(), []byte(key))
	switch {
	case value == "" && !errors.Is(err, kv.ErrNotFound):
		t.Errorf("get %q: %q, %v; want %v", key, got, err, kv.ErrNotFound)
	case value != "" && (err != nil || !bytes.Equal(got, []byte(value))):
		t.Errorf("get %q: %q, %v; want %q", key, got, err, value)
	}
}

// collect returns the pairs of a scan as "key=value".
func collect(ctx context.Context, reader kv.Reader, options kv.ScanOptions) ([]string, error) {
	var pairs []string
	for pair, err := range reader.Scan(ctx, options) {
		if err != nil {
			return pairs, err
		}
		pairs = append(pairs, string(pair.Key)+"="+string(pair.Value))
	}
	return pairs, nil
}
