package odb_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
	"packhorse/odb/kv"
)

// TestStoresCrash cuts the power between two operations of the file system under both stores, while
// writers seal files, register them in batches, settle and delete them. All acknowledged batches
// are there, none is there by half, and every file that a batch registered is whole.
func TestStoresCrash(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			crashStores(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

const crashWriters = 3

// crashStores runs writers until a crash and checks the stores that it leaves.
func crashStores(t *testing.T, random *rand.Rand) {
	t.Helper()
	disk := vfs.NewCrashableMem()
	crash := &crashPoint{disk: disk, random: rand.New(rand.NewPCG(random.Uint64(), 2)), unsynced: random.IntN(101)}
	crash.left.Store(random.Int64N(3000))
	watched := errorfs.Wrap(disk, errorfs.InjectorFunc(crash.pass))
	keys, files := openStores(t, watched)
	var writers sync.WaitGroup
	for i := range crashWriters {
		w := &crashWriter{
			number: i, keys: keys, files: files, random: rand.New(rand.NewPCG(random.Uint64(), 3)), crash: crash,
		}
		writers.Go(func() { w.run(t) })
	}
	writers.Wait()
	crash.take() // if the life was too short
	if err := errors.Join(keys.Close(), files.Close()); err != nil {
		t.Fatal(err)
	}

	keys, files = openStores(t, crash.after)
	for i := range crashWriters {
		checkWriter(t, keys, files, i, crash.acknowledged[i])
	}
	removeLeftovers(t, keys, files)
	if err := errors.Join(keys.Close(), files.Close()); err != nil {
		t.Error(err)
	}
}

func openStores(t *testing.T, disk vfs.FS) (*kv.Pebble, *file.Dir) {
	t.Helper()
	keys, err := kv.OpenPebble("data/kv", kv.PebbleOptions{
		FS: disk, MemoryBytes: 8 << 20, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	files, err := file.OpenDir("data/files", file.DirOptions{FS: filetest.AtomicRenames(disk)})
	if err != nil {
		t.Fatal(err)
	}
	return keys, files
}

// crashPoint copies the disk, as a loss of power would leave it, when a number of operations have
// passed.
type crashPoint struct {
	disk     *vfs.MemFS
	random   *rand.Rand
	unsynced int // percent that survive without a sync
	left     atomic.Int64
	once     sync.Once
	after    *vfs.MemFS
	gone     atomic.Bool

	acked        [crashWriters]atomic.Uint64
	acknowledged [crashWriters]uint64 // before the crash
}

// pass is called before each operation.
func (c *crashPoint) pass(errorfs.Op) error {
	if c.left.Add(-1) == 0 {
		c.take()
	}
	return nil
}

func (c *crashPoint) take() {
	c.once.Do(func() {
		for i := range c.acked {
			c.acknowledged[i] = c.acked[i].Load()
		}
		c.after = c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.unsynced, RNG: c.random})
		c.gone.Store(true)
	})
}

// crashWriter makes numbered transactions: each counts up the writer's head, writes rows, and may
// register or drop a file.
type crashWriter struct {
	number int
	keys   *kv.Pebble
	files  *file.Dir
	random *rand.Rand
	crash  *crashPoint
}

func headKey(writer int) []byte            { return fmt.Appendf(nil, "head/%d", writer) }
func rowKey(writer int, n uint64) []byte   { return fmt.Appendf(nil, "row/%d/%06d", writer, n) }
func fileName(writer int, n uint64) string { return fmt.Sprintf("w%d-%06d", writer, n) }

// rowCount is how many rows transaction n of a writer has; a batch by half has fewer.
func rowCount(n uint64) int { return int(n % 7) }

// fileBytes is the content of the file of transaction n, nil if it has none.
func fileBytes(writer int, n uint64) []byte {
	if n%3 != 0 {
		return nil
	}
	return bytes.Repeat(fmt.Appendf(nil, "%d/%d ", writer, n), int(n*2111%9000)+1)
}

// dropped reports whether the file of transaction n was dropped by a later one when the head is at
// head.
func dropped(n, head uint64) bool { return n%2 == 0 && n+6 <= head }

func (w *crashWriter) run(t *testing.T) {
	t.Helper()
	for n := uint64(1); n < 150 && !w.crash.gone.Load(); n++ {
		if err := w.transaction(t, n); err != nil {
			t.Errorf("transaction %d: %v", n, err)
			return
		}
		w.crash.acked[w.number].Store(n)
		if n > 6 && dropped(n-6, n) && fileBytes(w.number, n-6) != nil {
			if err := w.files.Delete(t.Context(), fileName(w.number, n-6)); err != nil {
				t.Errorf("delete: %v", err)
			}
		}
		if kept := n - uint64(w.random.IntN(5)); kept > 0 && kept <= n && fileBytes(w.number, kept) != nil &&
			!dropped(kept, n) {
			if err := w.files.Settle(t.Context(), fileName(w.number, kept)); err != nil {
				t.Errorf("settle: %v", err)
			}
		}
	}
}

func (w *crashWriter) transaction(t *testing.T, n uint64) error {
	t.Helper()
	batch := kv.NewBatch()
	if data := fileBytes(w.number, n); data != nil {
		f, err := w.files.Create(t.Context(), fileName(w.number, n))
		if err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
		if err := f.Seal(t.Context()); err != nil {
			return err
		}
		batch.Put([]byte("file/"+fileName(w.number, n)), nil)
	}
	if n == 1 {
		batch.RequireAbsent(headKey(w.number))
	} else {
		batch.Require(headKey(w.number), binary.BigEndian.AppendUint64(nil, n-1))
	}
	batch.Put(headKey(w.number), binary.BigEndian.AppendUint64(nil, n))
	for i := range rowCount(n) {
		batch.Put(fmt.Appendf(rowKey(w.number, n), "/%d", i), bytes.Repeat([]byte{byte(n)}, w.random.IntN(3000)))
	}
	if n > 6 && dropped(n-6, n) {
		batch.Delete([]byte("file/" + fileName(w.number, n-6)))
	}
	commit, err := w.keys.Apply(t.Context(), batch)
	if err != nil {
		return err
	}
	return commit.Wait(t.Context())
}

// checkWriter compares the rows and files of a writer with its transactions up to its head.
func checkWriter(t *testing.T, keys *kv.Pebble, files *file.Dir, writer int, acknowledged uint64) {
	t.Helper()
	head := uint64(0)
	value, err := keys.Get(t.Context(), headKey(writer))
	if err == nil {
		head = binary.BigEndian.Uint64(value)
	} else if !errors.Is(err, kv.ErrNotFound) {
		t.Error(err)
	}
	if head < acknowledged {
		t.Errorf("writer %d: transaction %d was acknowledged, found %d", writer, acknowledged, head)
	}
	for n := uint64(1); n <= head+2; n++ {
		rows := 0
		prefix := append(rowKey(writer, n), '/')
		for _, err := range keys.Scan(t.Context(), kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}) {
			if err != nil {
				t.Error(err)
			}
			rows++
		}
		if n <= head && rows != rowCount(n) || n > head && rows != 0 {
			t.Errorf("writer %d: %d rows of transaction %d, head %d", writer, rows, n, head)
		}
		name := fileName(writer, n)
		_, err := keys.Get(t.Context(), []byte("file/"+name))
		registered := err == nil
		if data := fileBytes(writer, n); registered != (data != nil && n <= head && !dropped(n, head)) {
			t.Errorf("writer %d: file of transaction %d is registered: %v, head %d", writer, n, registered, head)
		} else if registered {
			checkFile(t, files, name, data)
		}
	}
}

func checkFile(t *testing.T, files *file.Dir, name string, data []byte) {
	t.Helper()
	f, err := files.Open(t.Context(), name)
	if err != nil {
		t.Error(err)
		return
	}
	got, err := io.ReadAll(file.NewSectionReader(t.Context(), f, 0, f.Size()))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(data))
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// removeLeftovers settles registered files and removes the others, as a start does. No leftovers
// may remain.
func removeLeftovers(t *testing.T, keys *kv.Pebble, files *file.Dir) {
	t.Helper()
	for info, err := range files.Leftovers(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		_, err := keys.Get(t.Context(), []byte("file/"+info.Name))
		if err == nil {
			err = files.Settle(t.Context(), info.Name)
		} else if errors.Is(err, kv.ErrNotFound) {
			err = files.Delete(t.Context(), info.Name)
		}
		if err != nil {
			t.Errorf("%s: %v", info.Name, err)
		}
	}
	for info, err := range files.Leftovers(t.Context()) {
		t.Errorf("%s is still left over, %v", info.Name, err)
	}
}
