package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/file"
	"packhorse/odb/file/cache"
	"packhorse/odb/file/s3/s3test"
)

const mib = 1 << 20

// TestRequests counts what reading costs.
func TestRequests(t *testing.T) {
	t.Parallel()
	remote := newRemote(t)
	store := open(t, t.TempDir(), cache.Options{Store: remote})
	cost := func(what string, least, most int64, read func()) {
		t.Helper()
		before := remote.requests.Load()
		read()
		if got := remote.requests.Load() - before; got < least || got > most {
			t.Errorf("%s: %d requests, want %d to %d", what, got, least, most)
		}
	}
	random := func(f file.File, data []byte) {
		t.Helper()
		numbers := rand.New(rand.NewPCG(1, 2))
		for range 500 {
			at := numbers.IntN(len(data))
			check(t, f, data, at, numbers.IntN(min(len(data)-at, 200_000)+1))
		}
	}
	small, large := sample(1, 8*mib), sample(2, 64*mib)
	remote.put("small", small)
	remote.put("large", large)
	remote.put("random", large)
	remote.put("ends", large)
	cost("a file of 8 MiB", 1, 1, func() { random(get(t, store, "small"), small) })
	cost("again", 0, 0, func() { random(get(t, store, "small"), small) })
	cost("64 MiB forward", 8, 8, func() { forward(t, get(t, store, "large"), large) })
	cost("at random in a warm file", 0, 0, func() { random(get(t, store, "large"), large) })
	cost("at random in a cold file", 8, 8, func() { random(get(t, store, "random"), large) })
	cost("the end of a file", 1, 1, func() { check(t, get(t, store, "ends"), large, 60*mib, mib) })
	cost("the begin of a file", 1, 1, func() { check(t, get(t, store, "ends"), large, 0, mib) })
	if got, want := remote.bytes.Load(), int64(8*mib+2*64*mib+16*mib); got != want {
		t.Errorf("%d bytes were sent, want %d", got, want)
	}
	if err := cache.CloseAlone(store); err != nil { // waits for what is on its way
		t.Error(err)
	}
	stats := store.Stats()
	if stats.Fetches != 19 ||
		stats.FetchedBytes != uint64(remote.bytes.Load()) || stats.Direct != 0 || stats.Hits < 1000 ||
		stats.Misses == 0 || stats.Evictions != 0 || stats.Bytes != remote.bytes.Load() || stats.Files != 4 {
		t.Errorf("%+v", stats)
	}
}

// TestOwn reads what was sealed through the cache, without a request.
func TestOwn(t *testing.T) {
	t.Parallel()
	options := s3test.Start(t).Options(t)
	var requests atomic.Int64
	options.Request = func(time.Duration) { requests.Add(1) }
	store := open(t, t.TempDir(), cache.Options{Store: s3test.Open(t, options)})
	data := sample(1, 20*mib+77)
	put(t, store, "own", data)
	before := requests.Load()
	if before == 0 {
		t.Error("what was sealed was not sent")
	}
	forward(t, get(t, store, "own"), data)
	if got := requests.Load() - before; got != 0 {
		t.Errorf("%d requests", got)
	}
}

// TestAhead holds up all requests: a reader who goes forward has several under way.
func TestAhead(t *testing.T) {
	t.Parallel()
	remote := newRemote(t)
	data := sample(1, 100*mib)
	remote.put("a", data)
	store := open(t, t.TempDir(), cache.Options{Store: remote})
	f := get(t, store, "a")
	for at := 0; at < 7*mib; at += mib / 2 {
		check(t, f, data, at, mib/2)
	}
	held, let := make(chan struct{}, 100), make(chan struct{})
	remote.hold(func(context.Context, string) error {
		held <- struct{}{}
		<-let
		return nil
	})
	var reading sync.WaitGroup
	reading.Go(func() { forwardFrom(t, f, data, 7*mib) })
	for range 3 {
		<-held
	}
	close(let)
	reading.Wait()
}

func forwardFrom(t *testing.T, f file.File, data []byte, at int) {
	t.Helper()
	for ; at < len(data); at += mib / 2 {
		check(t, f, data, at, min(mib/2, len(data)-at))
	}
}

// TestShared lets many readers ask for one block at the same time.
func TestShared(t *testing.T) {
	t.Parallel()
	remote := newRemote(t)
	data := sample(1, 30*mib)
	remote.put("a", data)
	let := make(chan struct{})
	remote.hold(func(context.Context, string) error {
		<-let
		return nil
	})
	store := open(t, t.TempDir(), cache.Options{Store: remote})
	var readers sync.WaitGroup
	for range 20 {
		readers.Go(func() {
			f, err := store.Open(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			check(t, f, data, 3*mib+5, 100)
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	close(let)
	readers.Wait()
	if got := remote.requests.Load(); got != 2 {
		t.Errorf("%d requests, want one for the end and one for the block", got)
	}
}

// TestErrors lets requests fail: readers hear of it, and the next one tries again.
func TestErrors(t *testing.T) {
	t.Parallel()
	remote := newRemote(t)
	data := sample(1, 30*mib)
	remote.put("a", data)
	store := open(t, t.TempDir(), cache.Options{Store: remote})
	failing := func(context.Context, string) error { return fmt.Errorf("far away: %w", file.ErrUnavailable) }
	remote.hold(failing)
	if _, err := store.Open(t.Context(), "a"); !errors.Is(err, file.ErrUnavailable) {
		t.Errorf("open: %v", err)
	}
	remote.hold(nil)
	f := get(t, store, "a")
	remote.hold(failing)
	if _, err := f.ReadAt(t.Context(), make([]byte, 10), 0); !errors.Is(err, file.ErrUnavailable) {
		t.Errorf("read: %v", err)
	}
	remote.hold(func(context.Context, string) error {
		remote.hold(nil)
		panic("a bug")
	})
	check(t, f, data, 0, 100) // past the cache
	remote.hold(nil)
	check(t, f, data, 0, 2*mib)

	// A caller that gives up does not take the others with it.
	remote.put("b", data)
	let, asked := make(chan struct{}), make(chan struct{}, 10)
	remote.hold(func(context.Context, string) error {
		asked <- struct{}{}
		<-let
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() { check(t, get(t, store, "b"), data, 29*mib, 100) })
	<-asked
	cancel()
	if _, err := store.Open(ctx, "b"); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	close(let)
	others.Wait()
}

// TestForget damages copies on the disk: a block that is forgotten is copied again.
func TestForget(t *testing.T) {
	t.Parallel()
	remote, dir := newRemote(t), t.TempDir()
	data := sample(1, 5*mib+1)
	remote.put("a", data)
	store := open(t, dir, cache.Options{Store: remote})
	f := get(t, store, "a")
	check(t, f, data, 0, len(data))
	damage(t, copyOf(t, dir, "a"), 2*mib+17)
	got := make([]byte, mib)
	if _, err := f.ReadAt(t.Context(), got, 2*mib); err != nil || bytes.Equal(got, data[2*mib:3*mib]) {
		t.Fatalf("the damage is not seen, %v", err)
	}
	before := store.Stats().Bytes
	f.(file.Cached).Forget(2*mib+17, 1)
	if got := store.Stats().Bytes; got != before-mib {
		t.Errorf("%d bytes, want %d", got, before-mib)
	}
	check(t, f, data, 0, len(data))
	if got := remote.bytes.Load(); got != int64(len(data))+mib {
		t.Errorf("%d bytes were sent, want the file and a block", got)
	}
	if got := store.Stats().Bytes; got != before {
		t.Errorf("%d bytes, want %d", got, before)
	}
}

// copyOf returns the path of the copy of a file.
func copyOf(t *testing.T, dir, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "??", name))
	if err != nil || len(found) != 1 {
		t.Fatalf("copies of %s: %q, %v", name, found, err)
	}
	return found[0]
}

// damage changes a byte of a file.
func damage(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	_, readErr := f.ReadAt(b, at)
	b[0] ^= 1
	_, writeErr := f.WriteAt(b, at)
	if err := errors.Join(readErr, writeErr, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestRemoved removes everything under running readers, again and again.
func TestRemoved(t *testing.T) {
	t.Parallel()
	remote, dir := newRemote(t), filepath.Join(t.TempDir(), "cache")
	files := make(map[string][]byte)
	for i := range 4 {
		name := fmt.Sprintf("f%d", i)
		files[name] = sample(uint64(i), 3*mib*(i*i+1)-i)
		remote.put(name, files[name])
	}
	store := open(t, dir, cache.Options{Store: remote})
	var done atomic.Bool
	var readers sync.WaitGroup
	for name, data := range files {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(len(data)), 1))
			for !done.Load() {
				f, err := store.Open(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				for range 10 {
					at := random.IntN(len(data))
					check(t, f, data, at, random.IntN(min(len(data)-at, 100_000)+1))
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 15 {
		_ = os.RemoveAll(dir) // a file that is made meanwhile may be in the way
		cache.Flush(store)
	}
	done.Store(true)
	readers.Wait()
	for name, data := range files {
		check(t, get(t, store, name), data, 0, len(data))
	}
}

// TestFullDisk reads past a disk that takes nothing.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, full := range []error{syscall.ENOSPC, syscall.EIO} {
		for _, kind := range []errorfs.OpKind{errorfs.OpFileWriteAt, errorfs.OpCreate} {
			remote := newRemote(t)
			data := sample(1, 10*mib)
			remote.put("a", data)
			var count atomic.Int64
			disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				// The fourth piece of the first block is the first one that fails.
				if op.Kind == kind && (kind == errorfs.OpCreate || count.Add(1) > 3) {
					return full
				}
				return nil
			}))
			store := open(t, "cache", cache.Options{Store: remote, FS: disk})
			f := get(t, store, "a")
			check(t, f, data, 0, len(data))
			check(t, f, data, 3*mib, 100)
			check(t, f, data, 9*mib, mib)
			stats := store.Stats()
			if kind == errorfs.OpFileWriteAt && (stats.Direct != 3 || stats.Bytes != 0) {
				t.Errorf("%v: %+v", full, stats)
			}
		}
	}
}
