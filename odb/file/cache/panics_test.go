package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/file"
	"packhorse/odb/file/cache"
	"packhorse/odb/odbtest"
	"packhorse/odb/rescue"
)

// place is where a trap is.
type place string

const (
	behindCache place = "behind the cache"
	sealing     place = "in a seal"
	inDisk      place = "on the disk"
	evicting    place = "in an eviction"
)

// trapped is a store, and the disk of the cache before it, with a trap in one place.
type trapped struct {
	*remote
	place   place
	trap    odbtest.Trap
	streams atomic.Int64 // that are open
}

func (s *trapped) step(at place) {
	if at == s.place {
		s.trap.Step()
	}
}

// disk returns an empty one.
func (s *trapped) disk() vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		s.step(inDisk)
		if op.Kind == errorfs.OpRemove || op.Kind == errorfs.OpFileClose {
			s.step(evicting)
		}
		return nil
	}))
}

func (s *trapped) OpenTail(ctx context.Context, name string, tailBytes int64) (int64, io.ReadCloser, error) {
	s.step(behindCache)
	size, tail, err := s.remote.OpenTail(ctx, name, tailBytes)
	return size, s.stream(tail), err
}

func (s *trapped) OpenStream(ctx context.Context, name string, fileSize, offset, size int64) (io.ReadCloser, error) {
	s.step(behindCache)
	stream, err := s.remote.OpenStream(ctx, name, fileSize, offset, size)
	return s.stream(stream), err
}

func (s *trapped) stream(r io.Reader) io.ReadCloser {
	s.streams.Add(1)
	return &trappedStream{r, s}
}

type trappedStream struct {
	io.Reader
	store *trapped
}

func (r *trappedStream) Read(p []byte) (int, error) {
	r.store.step(behindCache)
	return r.Reader.Read(p)
}

func (r *trappedStream) Close() error {
	r.store.streams.Add(-1)
	r.store.step(behindCache)
	return nil
}

func (s *trapped) Create(ctx context.Context, name string) (file.Writer, error) {
	w, err := s.remote.Create(ctx, name)
	return &trappedWriter{w, s}, err
}

type trappedWriter struct {
	file.Writer
	store *trapped
}

var _ cache.Keeper = (*trappedWriter)(nil)

func (w *trappedWriter) SealTo(ctx context.Context, _ string) (kept bool, err error) {
	w.store.step(sealing)
	return false, w.Seal(ctx)
}

// trappedFiles do not fit into the cache together.
var trappedFiles = map[string][]byte{"a": sample(1, 8*mib+5), "b": sample(2, mib), "c": sample(3, mib/4)}

// TestPanics makes each call of the store behind the cache panic in turn, and each of the disk,
// while files are opened, read ahead, sealed and evicted: the reader or writer has it as an error,
// or it is logged. The same succeeds at once afterwards. No slot, no room and no stream is lost,
// and no file stays locked.
func TestPanics(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		place place
		bytes int64 // of the cache
		files int   // of the same
		dense int64 // the larger, the fewer calls are left out
	}{
		"fetches":      {behindCache, 9 * mib, 10, 1},
		"direct reads": {behindCache, 1, 10, 1},
		"disk":         {inDisk, 9 * mib, 2, 1},
		"evictions":    {evicting, 100 * mib, 1, 100},
		"seals":        {sealing, 9 * mib, 10, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			met := 0
			options := cache.Options{Bytes: test.bytes, Files: test.files}
			for n := int64(1); trapOnce(t, test.place, options, n); n += 1 + n/test.dense {
				met++
			}
			if met == 0 {
				t.Error("there was no panic")
			}
		})
	}
}

// trapOnce works with a panic in call n, then without one. It reports whether there was one.
func trapOnce(t *testing.T, at place, options cache.Options, n int64) (sprung bool) {
	t.Helper()
	behind := &trapped{remote: newRemote(t), place: at}
	for name, data := range trappedFiles {
		behind.put(name, data)
	}
	var log odbtest.Log
	options.Store, options.FS, options.Log = behind, behind.disk(), slog.New(slog.NewTextHandler(&log, nil))
	options.Fetches = 2
	store := open(t, "cache", options)
	written := 0
	work := func() error {
		for _, name := range []string{"a", "b", "c"} {
			if err := readParts(t, store, name, trappedFiles[name]); err != nil {
				return err
			}
		}
		cache.Flush(store)
		written++
		return writeFile(t, store, fmt.Sprint("w", written), trappedFiles["c"])
	}
	behind.trap.Set(n)
	err := rescue.Do(work)
	sprung = behind.trap.Take()
	if err := work(); err != nil {
		t.Fatalf("after a panic in call %d (it said %v): %v", n, err, err)
	}
	if err := cache.CloseAlone(store); err != nil { // waits for what is on its way
		t.Error(err)
	}
	panicked, _ := errors.AsType[*rescue.PanicError](err)
	isTold := panicked != nil && panicked.Value == odbtest.Trapped
	isLogged := err == nil && strings.Contains(log.String(), "panic: "+odbtest.Trapped)
	if (sprung || err != nil) && !isTold && !isLogged {
		t.Errorf("a panic in call %d: the error is %v, and this is logged: %s", n, err, log.String())
	}
	if held, streams := cache.Held(store), behind.streams.Load(); held != 0 || streams != 0 {
		t.Errorf("a panic in call %d (it said %v): %d uses and %d streams are left", n, err, held, streams)
	}
	if got, want := store.Stats().Bytes, cache.Counted(store); got != want {
		t.Errorf("a panic in call %d (it said %v): %d bytes count, %d are there", n, err, got, want)
	}
	return sprung
}

// readParts reads some of each block of a file in turn, and closes it.
func readParts(t *testing.T, store file.Store, name string, data []byte) (err error) {
	t.Helper()
	f, err := store.Open(t.Context(), name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	got := make([]byte, 100<<10)
	for at := 0; at < len(data); at += mib / 2 {
		want := data[at:min(at+len(got), len(data))]
		n, err := f.ReadAt(t.Context(), got[:len(want)], int64(at))
		if err != nil {
			return err
		}
		if !bytes.Equal(got[:n], want) {
			t.Errorf("%s: other bytes at %d", name, at)
		}
	}
	return nil
}

func writeFile(t *testing.T, store file.Store, name string, data []byte) (err error) {
	t.Helper()
	w, err := store.Create(t.Context(), name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Seal(t.Context())
}
