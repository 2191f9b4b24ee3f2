package kv_test

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
	"packhorse/odb/kv/kvtest"
)

// quiet drops what a store logs.
func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// crashable is a store on a file system that can lose power.
type crashable struct {
	*kv.Pebble
	fs *vfs.MemFS
}

const snapshotAge = 200 * time.Millisecond

func openMem(t testing.TB, fs *vfs.MemFS) *crashable {
	t.Helper()
	store, err := kv.OpenPebble("db", kv.PebbleOptions{
		FS: fs, MemoryBytes: 8 << 20, Logger: quiet(), SnapshotAge: snapshotAge,
		OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &crashable{Pebble: store, fs: fs}
}

func TestPebble(t *testing.T) {
	t.Parallel()
	var crashes atomic.Uint64
	kvtest.Run(t, kvtest.Harness{
		SnapshotAge: snapshotAge,
		Open:        func(t testing.TB) kv.Store { return openMem(t, vfs.NewCrashableMem()) },
		Crash: func(t testing.TB, store kv.Store) kv.Store {
			t.Helper()
			old := store.(*crashable)
			after := old.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(crashes.Add(1), 0))})
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			revived := openMem(t, after)
			t.Cleanup(func() { _ = revived.Close() })
			return revived
		},
	})
}
