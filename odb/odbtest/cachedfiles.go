package odbtest

import (
	"context"
	"sync"

	"packhorse/odb/file"
)

// CachedFiles is a file store whose files are [file.Cached], as if they were copied from afar. What
// is read of a copy for the first time is damaged until it is forgotten.
type CachedFiles struct {
	file.Store

	mu         sync.Mutex // guards the fields below
	prefetched map[string]int64
	forgotten  map[string][]span
	told       bool // Forget was called
}

// span is a range of a file.
type span struct{ offset, size int64 }

// Open implements [file.Store].
func (s *CachedFiles) Open(ctx context.Context, name string) (file.File, error) {
	f, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &cachedFile{File: f, name: name, store: s}, nil
}

// PrefetchedBytes returns how many bytes of a file were prefetched.
func (s *CachedFiles) PrefetchedBytes(name string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prefetched[name]
}

// Forgotten reports whether damage of a copy was met.
func (s *CachedFiles) Forgotten() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

// isRight reports whether some of the copy was fetched again.
func (s *CachedFiles) isRight(name string, offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.forgotten[name] {
		if known.offset <= offset && offset < known.offset+known.size {
			return true
		}
	}
	return false
}

type cachedFile struct {
	file.File
	name  string
	store *CachedFiles
}

// ReadAt flips a bit of the last byte that it reads, unless that was forgotten.
func (f *cachedFile) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(ctx, p, offset)
	if n > 0 && !f.store.isRight(f.name, offset+int64(n)-1) {
		p[n-1] ^= 1
	}
	return n, err
}

// Prefetch implements [file.Cached].
func (f *cachedFile) Prefetch(offset, size int64) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if f.store.prefetched == nil {
		f.store.prefetched = make(map[string]int64)
	}
	f.store.prefetched[f.name] += min(offset+size, f.Size()) - offset
}

// Forget implements [file.Cached].
func (f *cachedFile) Forget(offset, size int64) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if f.store.forgotten == nil {
		f.store.forgotten = make(map[string][]span)
	}
	f.store.told = true
	f.store.forgotten[f.name] = append(f.store.forgotten[f.name], span{offset, size})
}
