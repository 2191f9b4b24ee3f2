package kv_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
)

// TestDamage flips single bits in every file of a store. Every acknowledged value is read back
// unchanged, or an error reports the damage; none is lost silently or comes back wrong.
func TestDamage(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stop    func(t *testing.T, fs *vfs.MemFS, store *kv.Pebble) *vfs.MemFS
		noticed []string
	}{
		"after a clean end": {
			stop: func(t *testing.T, fs *vfs.MemFS, store *kv.Pebble) *vfs.MemFS {
				t.Helper()
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				return fs
			},
			noticed: []string{"sst", "manifest"},
		},
		"after a loss of power": {
			stop: func(t *testing.T, fs *vfs.MemFS, store *kv.Pebble) *vfs.MemFS {
				t.Helper()
				awaitTables(t, store)
				return fs.CrashClone(vfs.CrashCloneCfg{})
			},
			noticed: []string{"log", "sst", "manifest"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewCrashableMem()
			store := openMem(t, fs)
			written := fillForDamage(t, store.Pebble)
			fs = test.stop(t, fs, store.Pebble)
			t.Cleanup(func() { _ = store.Close() })
			names, err := fs.List("db")
			if err != nil {
				t.Fatal(err)
			}
			seen := make(map[string]int)
			for _, name := range names {
				flipBits(t, fs, "db/"+name, written, seen)
			}
			for _, kind := range test.noticed {
				if seen[kind] == 0 {
					t.Errorf("no damage to a %s was noticed: %v", kind, seen)
				}
			}
		})
	}
}

// fillForDamage makes a store with several tables, a log that is not flushed, and commits that
// cross the blocks of the log.
func fillForDamage(t *testing.T, store *kv.Pebble) map[string][]byte {
	t.Helper()
	random := rand.New(rand.NewPCG(5, 6))
	written := make(map[string][]byte)
	for i := range 250 {
		batch := kv.NewBatch()
		for j := range 1 + random.IntN(3) {
			key, value := fmt.Sprintf("key/%04d/%d", i, j), make([]byte, random.IntN(6000))
			for k := range value {
				value[k] = byte(random.Uint32())
			}
			batch.Put([]byte(key), value)
			written[key] = value
		}
		commit, err := store.Apply(t.Context(), batch)
		if err == nil {
			err = commit.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return written
}

// awaitTables returns when what fillForDamage put has been flushed and compacted, and the store has
// synced a statement behind that.
func awaitTables(t *testing.T, store *kv.Pebble) {
	t.Helper()
	awaitStats(t, store, func(s kv.Stats) bool { return s.Flushes > 0 && s.Compactions > 0 })
	batch := kv.NewBatch()
	batch.Delete([]byte("nothing"))
	commit, err := store.Apply(t.Context(), batch)
	if err == nil {
		err = commit.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	awaitRest(t, store)
}

// awaitRest returns when the store has synced a statement behind its last commit.
func awaitRest(t *testing.T, store *kv.Pebble) {
	t.Helper()
	awaitStats(t, store, func(s kv.Stats) bool { return s.Rested == s.Commits })
}

// awaitStats returns when the statistics have the expected values.
func awaitStats(t *testing.T, store *kv.Pebble, show func(kv.Stats) bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 20_000 {
		if show(store.Stats()) {
			return
		}
		<-tick.C
	}
	t.Fatalf("it does not come to pass: %+v", store.Stats())
}

// flipBits flips bits of one file, one at a time, mostly near its end.
func flipBits(t *testing.T, fs *vfs.MemFS, path string, written map[string][]byte, seen map[string]int) {
	t.Helper()
	info, err := fs.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(uint64(len(path)), 9))
	for round := range 10 {
		size := info.Size()
		if size == 0 {
			return
		}
		at := random.Int64N(size)
		if round%2 == 0 {
			at = max(size-1-random.Int64N(200), 0)
		}
		bit := byte(1) << random.IntN(8)
		damaged := fs.CrashClone(vfs.CrashCloneCfg{})
		flip(t, damaged, path, at, bit)
		err := readAll(t, damaged, written)
		if err != nil && !errors.Is(err, kv.ErrCorrupt) && !strings.Contains(path, "OPTIONS") {
			t.Errorf("%s: bit %#x at %d of %d: %v", path, bit, at, size, err)
		}
		if err != nil {
			seen[kindOf(path)]++
		}
	}
}

func kindOf(path string) string {
	switch {
	case strings.HasSuffix(path, ".log"):
		return "log"
	case strings.HasSuffix(path, ".sst"):
		return "sst"
	case strings.Contains(path, "MANIFEST"):
		return "manifest"
	default:
		return "other"
	}
}

func flip(t *testing.T, fs *vfs.MemFS, path string, at int64, bit byte) {
	t.Helper()
	file, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := file.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= bit
	if _, err := file.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

// readAll opens a damaged store and compares its values. It returns the error that reported the
// damage.
func readAll(t *testing.T, fs *vfs.MemFS, written map[string][]byte) error {
	t.Helper()
	var fatal atomic.Bool
	store, err := kv.OpenPebble("db", kv.PebbleOptions{
		FS: fs, MemoryBytes: 8 << 20, Logger: quiet(), OnFatal: func(error) { fatal.Store(true) },
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := store.Close(); err != nil && !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("close: %v", err)
		}
	}()
	lookups := 0
	for key, value := range written { // tables are opened and searched in another way than by the scan
		got, err := store.Get(t.Context(), []byte(key))
		if errors.Is(err, kv.ErrNotFound) || err == nil && !bytes.Equal(got, value) {
			t.Errorf("%s: %v, and %d bytes for %d", key, err, len(got), len(value))
		}
		if lookups++; lookups == 20 || err != nil {
			break
		}
	}
	count := 0
	for pair, err := range store.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			return err
		}
		if value, ok := written[string(pair.Key)]; !ok || !bytes.Equal(pair.Value, value) {
			t.Errorf("%s is wrong", pair.Key)
		}
		count++
	}
	if count != len(written) {
		t.Errorf("%d keys of %d are lost", len(written)-count, len(written))
	}
	if fatal.Load() {
		t.Error("damage ends the process")
	}
	return nil
}
