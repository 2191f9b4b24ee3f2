package kv_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
	"packhorse/odb/kv/kvtest"
)

// quiet drops the log of a store.
func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// crashable is a store on a file system that can lose power.
type crashable struct {
	*kv.Pebble
	fs *vfs.MemFS
}

func openMem(t *testing.T, fs *vfs.MemFS) *crashable {
	t.Helper()
	return openAged(t, fs, 0)
}

func openAged(t *testing.T, fs *vfs.MemFS, snapshotAge time.Duration) *crashable {
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
		Open: func(t *testing.T, snapshotAge time.Duration) kv.Store {
			t.Helper()
			return openAged(t, vfs.NewCrashableMem(), snapshotAge)
		},
		Crash: func(t *testing.T, store kv.Store) kv.Store {
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

func TestLocked(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	store := openMem(t, fs)
	if _, err := kv.OpenPebble("db", kv.PebbleOptions{FS: fs, Logger: quiet()}); !errors.Is(err, kv.ErrLocked) {
		t.Errorf("a second store in the directory: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openMem(t, fs).Close(); err != nil {
		t.Error(err)
	}
}

// TestFormat pins the format on the disk: a change of it must be intended.
func TestFormat(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	if err := openMem(t, fs).Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	marker := fmt.Sprintf(".%03d", pebble.FormatWALSyncChunks)
	if !slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "marker.format-version.") && strings.HasSuffix(name, marker)
	}) {
		t.Errorf("%q has no marker of format%s", names, marker)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	store := openMem(t, vfs.NewCrashableMem())
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	written := fillForDamage(t, store.Pebble)
	awaitStats(t, store.Pebble, func(s kv.Stats) bool { return s.Flushes > 0 })
	for key := range written {
		if _, err := store.Get(t.Context(), []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	batch := kv.NewBatch()
	batch.Require([]byte("none"), nil)
	if _, err := store.Apply(t.Context(), batch); !errors.Is(err, kv.ErrConflict) {
		t.Fatal(err)
	}
	stats := store.Stats()
	for name, value := range map[string]uint64{
		"DiskBytes": stats.DiskBytes, "MemtableBytes": stats.MemtableBytes, "CacheBytes": uint64(stats.CacheBytes),
		"CacheHits": uint64(stats.CacheHits), "CacheMisses": uint64(stats.CacheMisses), "LogBytes": stats.LogBytes,
		"FlushedBytes": stats.FlushedBytes, "LogSyncs": stats.LogSyncs, "Flushes": uint64(stats.Flushes),
		"ReadAmplification": uint64(stats.ReadAmplification),
	} {
		if value == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	if stats.Commits != 250 || stats.Conflicts != 1 || stats.Unsynced != 0 {
		t.Errorf("%d commits, %d conflicts, %d unsynced", stats.Commits, stats.Conflicts, stats.Unsynced)
	}
}

// TestInUse asks whether a directory is in use, which makes nothing and keeps nobody out.
func TestInUse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "db")
	if kv.InUse(dir) {
		t.Error("a directory that is not there is in use")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("asking has made it: %v", err)
	}
	for range 2 {
		store, err := kv.OpenPebble(dir, kv.PebbleOptions{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		if !kv.InUse(dir) {
			t.Error("the directory of an open store is not in use")
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if kv.InUse(dir) {
			t.Error("the directory of a closed store is in use")
		}
	}
}
