package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/file"
)

var errFault = errors.New("injected fault")

// TestFaults makes each file operation that changes something fail once. A file whose Seal failed
// is not there, and its name is free; everything that succeeded has happened, also after a loss of
// power.
func TestFaults(t *testing.T) {
	t.Parallel()
	for at := int64(1); ; at++ {
		var left atomic.Int64
		left.Store(at)
		fs := vfs.NewCrashableMem()
		faulty := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && left.Add(-1) == 0 {
				return errFault
			}
			return nil
		}))
		runFaulty(t, fs, faulty, at)
		if left.Load() > 0 {
			if at < 40 {
				t.Errorf("only %d operations", at)
			}
			return
		}
	}
}

// runFaulty survives a fault, cuts the power and compares the remaining files with the successful
// calls.
func runFaulty(t *testing.T, fs *vfs.MemFS, faulty vfs.FS, at int64) {
	t.Helper()
	dir, err := file.OpenDir("data/files", file.DirOptions{FS: faulty})
	if err != nil {
		if !errors.Is(err, errFault) {
			t.Errorf("fault %d: open: %v", at, err)
		}
		return
	}
	sealed := make(map[string][]byte)
	for i := range 4 {
		name, data := fmt.Sprint("f", i), bytes.Repeat([]byte{byte(i)}, 300_000*i)
		if err := writeFile(t, dir, name, data); err != nil {
			if _, openErr := dir.Open(t.Context(), name); !errors.Is(openErr, file.ErrNotFound) {
				t.Errorf("fault %d: %s failed with %v and is found: %v", at, name, err, openErr)
			}
			if err := writeFile(t, dir, name, data); err != nil {
				t.Errorf("fault %d: %s again: %v", at, name, err)
			}
		}
		sealed[name] = data
		if i%2 == 0 {
			continue
		}
		if err := dir.Settle(t.Context(), name); err != nil {
			checkFile(t, dir, name, data)
			if err := dir.Settle(t.Context(), name); err != nil {
				t.Errorf("fault %d: settle %s again: %v", at, name, err)
			}
		}
	}
	for _, name := range []string{"f0", "f1"} {
		if err := dir.Delete(t.Context(), name); err != nil {
			if err := dir.Delete(t.Context(), name); err != nil && !errors.Is(err, file.ErrNotFound) {
				t.Errorf("fault %d: delete %s again: %v", at, name, err)
			}
		}
		delete(sealed, name)
	}
	after := openMem(t, fs.CrashClone(vfs.CrashCloneCfg{}), "")
	for name, data := range sealed {
		checkFile(t, after, name, data)
	}
	if err := after.Close(); err != nil {
		t.Error(err)
	}
}

// writeFile creates and seals a file.
func writeFile(t *testing.T, dir *file.Dir, name string, data []byte) error {
	t.Helper()
	w, err := dir.Create(t.Context(), name)
	if err != nil {
		return err
	}
	if _, err = w.Write(data); err == nil {
		err = w.Seal(t.Context())
	}
	if abortErr := w.Abort(); abortErr != nil && !errors.Is(abortErr, errFault) {
		t.Errorf("abort %s: %v", name, abortErr)
	}
	return err
}

func checkFile(t *testing.T, store file.Store, name string, data []byte) {
	t.Helper()
	f, err := store.Open(t.Context(), name)
	if err != nil {
		t.Errorf("open %s: %v", name, err)
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
