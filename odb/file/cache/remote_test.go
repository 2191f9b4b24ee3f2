package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/odb/file/cache"
)

// remote is a store that counts requests and lets a test hold them up. What is written to it lies
// in a folder in memory; files that a test puts there are delivered without a copy.
type remote struct {
	*file.Dir
	requests atomic.Int64
	bytes    atomic.Int64

	mu    sync.Mutex                                   // guards the fields below
	files map[string][]byte                            // put there by the test
	gate  func(ctx context.Context, name string) error // asked before each request
}

var _ cache.Ranger = (*remote)(nil)

func newRemote(tb testing.TB) *remote {
	tb.Helper()
	dir, err := file.OpenDir("files", file.DirOptions{FS: vfs.NewMem()})
	if err != nil {
		tb.Fatal(err)
	}
	return &remote{Dir: dir, files: make(map[string][]byte)}
}

// put makes a file of bytes that nobody changes.
func (r *remote) put(name string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[name] = data
}

// find returns the bytes of a file.
func (r *remote) find(ctx context.Context, name string) ([]byte, error) {
	r.mu.Lock()
	data, ok := r.files[name]
	r.mu.Unlock()
	if ok {
		return data, nil
	}
	f, err := r.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(file.NewSectionReader(ctx, f, 0, f.Size()))
	return data, errors.Join(err, f.Close())
}

// hold sets what is asked before each request.
func (r *remote) hold(gate func(ctx context.Context, name string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = gate
}

func (r *remote) request(ctx context.Context, name string) error {
	r.requests.Add(1)
	r.mu.Lock()
	gate := r.gate
	r.mu.Unlock()
	if gate == nil {
		return nil
	}
	return gate(ctx, name)
}

func (r *remote) OpenTail(ctx context.Context, name string, tailBytes int64) (int64, io.ReadCloser, error) {
	if err := r.request(ctx, name); err != nil {
		return 0, nil, err
	}
	data, err := r.find(ctx, name)
	if err != nil {
		return 0, nil, err
	}
	return int64(len(data)), r.section(data[max(0, int64(len(data))-tailBytes):]), nil
}

func (r *remote) OpenStream(ctx context.Context, name string, _, offset, size int64) (io.ReadCloser, error) {
	if err := r.request(ctx, name); err != nil {
		return nil, err
	}
	data, err := r.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return r.section(data[offset : offset+size]), nil
}

func (r *remote) section(data []byte) io.ReadCloser {
	r.bytes.Add(int64(len(data)))
	return io.NopCloser(bytes.NewReader(data))
}

// sample returns bytes of which each block is another one.
func sample(seed uint64, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(data[:min(size, 100_000)])
	for at := 100_000; at < size; at += 100_000 {
		copy(data[at:], data[:100_000])
		copy(data[at:], fmt.Sprintf("%d at %d;", seed, at))
	}
	return data
}

// put seals a file in a store.
func put(tb testing.TB, store file.Store, name string, data []byte) {
	tb.Helper()
	w, err := store.Create(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Seal(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// get opens a file, which is closed when the test ends.
func get(tb testing.TB, store file.Store, name string) file.File {
	tb.Helper()
	f, err := store.Open(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// check reads size bytes from an offset on and compares them with those of data.
func check(tb testing.TB, f file.File, data []byte, offset, size int) {
	tb.Helper()
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	*buffer = slices.Grow((*buffer)[:0], size)
	got := (*buffer)[:size]
	clear(got)
	n, err := f.ReadAt(tb.Context(), got, int64(offset))
	if err != nil || !bytes.Equal(got, data[offset:offset+size]) {
		tb.Errorf("%d bytes at %d: %d, or others, %v", size, offset, n, err)
	}
}

// forward reads a file from its begin to its end, in pieces of 64 KiB.
func forward(tb testing.TB, f file.File, data []byte) {
	tb.Helper()
	for at := 0; at < len(data); at += 64 << 10 {
		check(tb, f, data, at, min(64<<10, len(data)-at))
	}
}
