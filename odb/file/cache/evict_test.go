package cache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"packhorse/odb/file"
	"packhorse/odb/file/cache"
)

// cached returns which files of a list are read without a request.
func cached(t *testing.T, store *cache.Store, remote *remote, list string) string {
	t.Helper()
	var found []string
	for name := range strings.FieldsSeq(list) {
		refuse := errors.New("not now")
		remote.hold(func(context.Context, string) error { return refuse })
		f, err := store.Open(t.Context(), name)
		if err == nil {
			_, err = io.ReadAll(file.NewSectionReader(t.Context(), f, 0, f.Size()))
			err = errors.Join(err, f.Close())
		}
		remote.hold(nil)
		switch {
		case err == nil:
			found = append(found, name)
		case !errors.Is(err, refuse):
			t.Errorf("%s: %v", name, err)
		}
	}
	return strings.Join(found, " ")
}

// readAll reads a file and closes it.
func readAll(t *testing.T, store file.Store, name string, data []byte) {
	t.Helper()
	f, err := store.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	check(t, f, data, 0, len(data))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEvict fills a cache: files leave in the order of their last use, open ones last.
func TestEvict(t *testing.T) {
	t.Parallel()
	remote := newRemote(t)
	data := sample(1, 10*mib)
	for name := range strings.FieldsSeq("a b c d e f g") {
		remote.put(name, data)
	}
	dir := t.TempDir()
	store := open(t, dir, cache.Options{Store: remote, Bytes: 35 * mib})
	for name := range strings.FieldsSeq("a b c a d") { // there is room for three
		readAll(t, store, name, data)
	}
	if got := cached(t, store, remote, "a b c d"); got != "a c d" {
		t.Errorf("cached: %s", got)
	}
	if got := store.Stats(); got.Evictions != 1 || got.Bytes != 30*mib || onDisk(t, dir) != 3 {
		t.Errorf("%+v, %d files on the disk", got, onDisk(t, dir))
	}

	first := get(t, store, "a") // is open from now on, and used first
	check(t, first, data, 0, 10)
	for name := range strings.FieldsSeq("b c d e") {
		readAll(t, store, name, data)
	}
	if got := cached(t, store, remote, "b c d e a"); got != "d e a" {
		t.Errorf("with an open file: %s", got)
	}

	// With nothing but open files, the one that was not read for longest gives up its blocks.
	second, third := get(t, store, "d"), get(t, store, "e")
	for _, f := range []file.File{second, first, third} {
		check(t, f, data, 0, len(data))
	}
	fourth := get(t, store, "f")
	check(t, fourth, data, 0, len(data))
	if got := cached(t, store, remote, "a d e f"); got != "a e f" {
		t.Errorf("of open files: %s", got)
	}
	check(t, second, data, 0, len(data))
	if got := store.Stats().Bytes; got > 35*mib {
		t.Errorf("%d bytes are cached", got)
	}
}

// onDisk returns the number of files in a cache's folder.
func onDisk(t *testing.T, dir string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "??", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// TestLarger reads a file that is larger than the cache.
func TestLarger(t *testing.T) {
	t.Parallel()
	remote := newRemote(t)
	data := sample(1, 30*mib)
	remote.put("a", data)
	store := open(t, t.TempDir(), cache.Options{Store: remote, Bytes: 12 * mib})
	f := get(t, store, "a")
	for range 2 {
		check(t, f, data, 0, len(data))
	}
	if got := store.Stats(); got.Bytes > 12*mib || got.Bytes < 10*mib || got.Direct == 0 {
		t.Errorf("%+v", got)
	}
}

// TestFileCount bounds how many files are known.
func TestFileCount(t *testing.T) {
	t.Parallel()
	remote := newRemote(t)
	store := open(t, t.TempDir(), cache.Options{Store: remote, Files: 10})
	for i := range 50 {
		name := fmt.Sprintf("f%d", i)
		remote.put(name, []byte(name))
		readAll(t, store, name, []byte(name))
		if got := store.Stats().Files; got > 12 {
			t.Fatalf("%d files are known", got)
		}
	}
}

// TestShrink makes room for others: the open file leaves last, and can be read again.
func TestShrink(t *testing.T) {
	t.Parallel()
	remote := newRemote(t)
	data := sample(1, 2*mib)
	store := open(t, t.TempDir(), cache.Options{Store: remote})
	for name := range strings.FieldsSeq("a b c") {
		remote.put(name, data)
		readAll(t, store, name, data)
	}
	f := get(t, store, "a")
	for _, bytes := range []int64{1, 2 * mib} {
		if got := store.Shrink(bytes); got != 2*mib {
			t.Errorf("%d bytes were freed", got)
		}
	}
	if got := cached(t, store, remote, "a b c"); got != "a" {
		t.Errorf("cached: %s", got)
	}
	if got := store.Shrink(100 * mib); got != 2*mib || store.Stats().Bytes != 0 {
		t.Errorf("%d bytes were freed, %+v", got, store.Stats())
	}
	check(t, f, data, 0, len(data))
}

// TestReopen closes a cache, damages what it has left, and opens it again.
func TestReopen(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		damage func(path string) error
		kept   bool
	}{
		"nothing":      {func(string) error { return nil }, true},
		"map":          {func(path string) error { return change(path, -20) }, false},
		"magic":        {func(path string) error { return change(path, -1) }, false},
		"cut":          {func(path string) error { return os.Truncate(path, 9*mib) }, false},
		"nothing left": {func(path string) error { return os.Truncate(path, 0) }, false},
		"removed":      {os.Remove, false},
		"renamed":      {func(path string) error { return os.Rename(path, filepath.Join(filepath.Dir(path), "b")) }, false},
		"unfinished":   {func(path string) error { return os.Rename(path, path+"~") }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			remote, dir := newRemote(t), t.TempDir()
			data := sample(1, 10*mib+5)
			if test.kept {
				data = sample(1, 66*mib+5) // more blocks than a word of the map has bits
			}
			remote.put("a", data)
			before := open(t, dir, cache.Options{Store: remote})
			f := get(t, before, "a")
			check(t, f, data, 9*mib, mib)
			check(t, f, data, len(data)-mib, mib)
			cache.Flush(before)
			check(t, f, data, 8*mib, 10)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err := cache.CloseAlone(before); err != nil {
				t.Fatal(err)
			}
			bytes := before.Stats().Bytes
			if err := test.damage(copyOf(t, dir, "a")); err != nil {
				t.Fatal(err)
			}
			after := open(t, dir, cache.Options{Store: remote})
			if got := after.Stats(); test.kept && (got.Bytes != bytes || got.Files != 1) || !test.kept && got.Files != 0 {
				t.Errorf("%+v, want %d bytes", got, bytes)
			}
			count := remote.requests.Load()
			f = get(t, after, "a")
			check(t, f, data, 8*mib, 2*mib)
			check(t, f, data, len(data)-mib, mib)
			if got := remote.requests.Load() - count; (got == 0) != test.kept {
				t.Errorf("%d requests", got)
			}
			check(t, f, data, 0, len(data))
		})
	}
}

// change changes a byte of a file, counted from its end.
func change(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b := make([]byte, 1)
	_, readErr := f.ReadAt(b, info.Size()+at)
	b[0] ^= 1
	_, writeErr := f.WriteAt(b, info.Size()+at)
	return errors.Join(readErr, writeErr, f.Close())
}

// TestStorm reads, writes, forgets and deletes files through a cache that is far too small for
// them, from many goroutines.
func TestStorm(t *testing.T) {
	t.Parallel()
	remote := newRemote(t)
	files := make([][]byte, 12)
	for i := range files {
		files[i] = sample(uint64(i), 300_000<<(i%6)+i)
		remote.put(fmt.Sprintf("f%d", i), files[i])
	}
	store := open(t, t.TempDir(), cache.Options{Store: remote, Bytes: 20 * mib, Files: 8, Fetches: 5})
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for round := range 24 {
				if worker == 0 && round%8 == 0 {
					name := fmt.Sprintf("own%d", round)
					put(t, store, name, files[5])
					readAll(t, store, name, files[5])
					if err := store.Delete(t.Context(), name); err != nil {
						t.Error(err)
					}
					continue
				}
				i := random.IntN(len(files))
				f, err := store.Open(t.Context(), fmt.Sprintf("f%d", i))
				if err != nil {
					t.Error(err)
					return
				}
				for range 5 {
					at := random.IntN(len(files[i]))
					size := random.IntN(min(len(files[i])-at, mib) + 1)
					switch random.IntN(6) {
					case 0:
						f.(file.Cached).Forget(int64(at), int64(size))
					case 1:
						f.(file.Cached).Prefetch(int64(at), int64(size))
					default:
						check(t, f, files[i], at, size)
					}
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
				if random.IntN(10) == 0 {
					cache.Flush(store)
				}
				if got := store.Stats().Bytes; got > 20*mib || got < 0 {
					t.Errorf("%d bytes are cached", got)
				}
			}
		})
	}
	workers.Wait()
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if got := store.Stats(); got.Evictions == 0 || got.Bytes != cache.Counted(store) {
		t.Errorf("%+v, %d bytes by the maps", got, cache.Counted(store))
	}
}
