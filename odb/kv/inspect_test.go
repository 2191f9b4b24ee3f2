package kv_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/kv"
)

// TestInspect damages a store in ways that are no flipped bits.
func TestInspect(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	store := openMem(t, fs)
	fillForDamage(t, store.Pebble)
	awaitTables(t, store.Pebble)
	tests := map[string]func(t *testing.T, fs *vfs.MemFS, path string){
		"no name of the manifest": func(t *testing.T, fs *vfs.MemFS, path string) {
			t.Helper()
			if strings.Contains(path, "marker.manifest") {
				remove(t, fs, path)
			}
		},
		"no manifest": func(t *testing.T, fs *vfs.MemFS, path string) {
			t.Helper()
			if strings.Contains(path, "db/MANIFEST-") {
				remove(t, fs, path)
			}
		},
		"a block of zeros in the logs": func(t *testing.T, fs *vfs.MemFS, path string) {
			t.Helper()
			if strings.HasSuffix(path, ".log") {
				overwrite(t, fs, path, 100_000, make([]byte, 32<<10))
			}
		},
		"another log's number": func(t *testing.T, fs *vfs.MemFS, path string) {
			t.Helper()
			if strings.HasSuffix(path, ".log") { // the lowest byte of the number in the first chunk: Pebble takes it for the end
				overwrite(t, fs, path, 7, []byte{logNumber(t, path) + 1})
			}
		},
		"no tables": func(t *testing.T, fs *vfs.MemFS, path string) {
			t.Helper()
			if strings.HasSuffix(path, ".sst") {
				remove(t, fs, path)
			}
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			damaged := fs.CrashClone(vfs.CrashCloneCfg{})
			names, err := damaged.List("db")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				damage(t, damaged, "db/"+name)
			}
			opened, err := kv.OpenPebble("db", kv.PebbleOptions{FS: damaged, Logger: quiet()})
			if err == nil {
				t.Error("opens without an error", opened.Close())
			} else if !errors.Is(err, kv.ErrCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func remove(t *testing.T, fs *vfs.MemFS, path string) {
	t.Helper()
	if err := fs.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, fs *vfs.MemFS, path string, at int64, data []byte) {
	t.Helper()
	file, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(data, at); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

// logNumber returns the lowest byte of the number in the name of a log.
func logNumber(t *testing.T, path string) byte {
	t.Helper()
	number := 0
	for _, digit := range strings.TrimSuffix(path[strings.LastIndex(path, "/")+1:], ".log") {
		number = number*10 + int(digit-'0')
	}
	return byte(number)
}
