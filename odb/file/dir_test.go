package file_test

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
)

// crashable is a store on a file system that can lose power.
type crashable struct {
	*file.Dir
	fs *vfs.MemFS
}

func openMem(t *testing.T, fs *vfs.MemFS, server string) *crashable {
	t.Helper()
	dir, err := file.OpenDir("data/files", file.DirOptions{FS: filetest.AtomicRenames(fs), ServerID: server})
	if err != nil {
		t.Fatal(err)
	}
	return &crashable{Dir: dir, fs: fs}
}

func TestDir(t *testing.T) {
	t.Parallel()
	var crashes atomic.Uint64
	h := filetest.Harness{
		Open: func(t *testing.T) file.Store {
			t.Helper()
			return openMem(t, vfs.NewCrashableMem(), "")
		},
		Other: func(t *testing.T, store file.Store) file.Store {
			t.Helper()
			return openMem(t, store.(*crashable).fs, "other.1")
		},
		Crash: func(t *testing.T, store file.Store) file.Store {
			t.Helper()
			config := vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(crashes.Add(1), 0))}
			revived := openMem(t, store.(*crashable).fs.CrashClone(config), "")
			t.Cleanup(func() { _ = revived.Close() })
			return revived
		},
	}
	filetest.Run(t, h)
	filetest.RunIncoming(t, h)
}

// TestDirOnDisk runs the suite on the file system of the machine.
func TestDirOnDisk(t *testing.T) {
	t.Parallel()
	h := filetest.Harness{
		Open: func(t *testing.T) file.Store {
			t.Helper()
			dir, err := file.OpenDir(t.TempDir(), file.DirOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return dir
		},
	}
	filetest.Run(t, h)
	filetest.RunIncoming(t, h)
}

// TestDeleted checks what a Dir promises beyond a Store: it tells that a name is not there, and an
// open file that was deleted can be read on.
func TestDeleted(t *testing.T) {
	t.Parallel()
	dir := openMem(t, vfs.NewCrashableMem(), "")
	if err := writeFile(t, dir.Dir, "a", []byte("data")); err != nil {
		t.Fatal(err)
	}
	f, err := dir.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := dir.Delete(t.Context(), "a"); !errors.Is(err, file.ErrNotFound) {
		t.Errorf("delete again: %v", err)
	}
	got, err := io.ReadAll(file.NewSectionReader(t.Context(), f, 0, f.Size()))
	if err != nil || string(got) != "data" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := errors.Join(f.Close(), dir.Close()); err != nil {
		t.Error(err)
	}
}

func TestServerID(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	first := openMem(t, fs, "a")
	if _, err := file.OpenDir("data/files", file.DirOptions{FS: fs, ServerID: "a"}); !errors.Is(err, file.ErrLocked) {
		t.Errorf("a second store under the same id: %v", err)
	}
	if _, err := file.OpenDir("data/files", file.DirOptions{FS: fs, ServerID: "../a"}); !errors.Is(err, file.ErrName) {
		t.Errorf("a bad id: %v", err)
	}
	second := openMem(t, fs, "b")
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	if err := openMem(t, fs, "a").Close(); err != nil {
		t.Error(err)
	}
}

// TestSweep checks that a start removes only leftovers.
func TestSweep(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	dir := openMem(t, fs, "a")
	w, err := dir.Create(t.Context(), "unsealed")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"~17", "sealed"} {
		f, err := fs.Create("data/files/incoming/a/"+left, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := openMem(t, fs, "a").Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("data/files/incoming/a")
	if err != nil || len(names) != 2 || !strings.Contains(strings.Join(names, " "), "sealed") {
		t.Errorf("found %q, %v; want LOCK and sealed", names, err)
	}
}

func TestFree(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	dir := openMem(t, fs, "")
	defer func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	}()
	if free, err := dir.Free(t.Context()); free != math.MaxUint64 || err != nil {
		t.Errorf("no telling: %d, %v", free, err)
	}
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 4711, TotalBytes: 5000})
	if free, err := dir.Free(t.Context()); free != 4711 || err != nil {
		t.Errorf("%d, %v", free, err)
	}
}

// TestReadOnly opens a store beside the one that writes.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	fs := vfs.NewMem()
	if _, err := file.OpenDir("store", file.DirOptions{FS: fs, ReadOnly: true}); err == nil {
		t.Error("a store that does not exist was opened")
	}
	writer, err := file.OpenDir("store", file.DirOptions{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	unsealed, err := writer.Create(ctx, "unsealed")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := writer.Create(ctx, "sealed")
	if err != nil {
		t.Fatal(err)
	}
	if err := sealed.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	reader, err := file.OpenDir("store", file.DirOptions{FS: fs, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	found, err := reader.Open(ctx, "sealed")
	if err != nil {
		t.Fatal(err)
	}
	_, createErr := reader.Create(ctx, "new")
	_, scratchErr := reader.Scratch(ctx)
	for call, err := range map[string]error{
		"Create": createErr, "Scratch": scratchErr, "Delete": reader.Delete(ctx, "sealed"), "Settle": reader.Settle(ctx,
			"sealed"),
	} {
		if !errors.Is(err, file.ErrReadOnly) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if err := unsealed.Seal(ctx); err != nil {
		t.Errorf("the file that was being written: %v", err)
	}
	if err := errors.Join(found.Close(), reader.Close(), writer.Close()); err != nil {
		t.Error(err)
	}
}
