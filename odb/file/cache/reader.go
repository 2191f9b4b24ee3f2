package cache

import (
	"context"
	"errors"
	"io"
	"sync"

	"packhorse/odb/file"
)

const (
	// tracksMax is the number of readers going forward that are told apart in one open file.
	tracksMax = 8
	// trackGap is how far a reader that goes forward may skip.
	trackGap = 256 << 10
	// prefetchMax is the number of windows that a hint copies.
	prefetchMax = 8
	// retriesMax is how often a block that has come and gone again is waited for.
	retriesMax = 3
)

// reader is an open file.
type reader struct {
	entry *entry

	mu     sync.RWMutex // guards closed; shared by reads
	closed bool

	tracking sync.Mutex // guards the fields below
	tracks   [tracksMax]track
	clock    int64
}

// track is somebody who reads forward.
type track struct {
	next  int64 // where the next read begins
	run   int64 // bytes read in a row
	ahead int64 // the windows before it are being copied
	used  int64 // the reader's clock
}

var (
	_ file.File   = (*reader)(nil)
	_ file.Cached = (*reader)(nil)
)

// ReadAt implements file.File.
func (r *reader) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.entry
	switch {
	case r.closed:
		return 0, file.ErrClosed
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case offset < 0:
		return 0, file.ErrRange
	case offset >= e.size && len(p) > 0:
		return 0, io.EOF
	}
	wanted := p[:max(0, min(int64(len(p)), e.size-offset))]
	if !e.whole.Load() && len(wanted) > 0 {
		_ = e.copy(offset/blockBytes, true)
		r.forward(offset, int64(len(wanted)))
	}
	n, err := e.read(ctx, wanted, offset)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// read reads bytes within the file.
func (e *entry) read(ctx context.Context, p []byte, offset int64) (int, error) {
	s, waits := e.store, 0
	for n := 0; n < len(p); {
		m, err := e.readLocal(p[n:], offset+int64(n))
		n += m
		if m > 0 {
			continue
		}
		at := offset + int64(n)
		if err != nil {
			s.log.Warn("cache: the disk does not give back what was copied", "file", e.name, "error", err)
			e.lose(at/blockBytes, (offset+int64(len(p))-1)/blockBytes)
			return e.readDirect(ctx, p, n, at)
		}
		if waits++; waits > retriesMax+len(p)/blockBytes {
			return e.readDirect(ctx, p, n, at)
		}
		a := e.copy(at/blockBytes, true)
		if a == nil {
			continue // it has just come
		}
		err = s.block(ctx, func() error {
			select {
			case <-a.done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			return n, err
		}
		if errors.Is(a.err, errNotCopied) || errors.Is(a.err, file.ErrClosed) {
			return e.readDirect(ctx, p, n, at)
		}
		if a.err != nil {
			return n, a.err
		}
	}
	if waits > 0 {
		s.misses.Add(1)
	} else {
		s.hits.Add(1)
	}
	e.touch()
	return len(p), nil
}

// readDirect reads what is missing of p past the cache; n bytes are there, and the next one is at
// an offset of the file.
func (e *entry) readDirect(ctx context.Context, p []byte, n int, offset int64) (int, error) {
	e.store.direct.Add(1)
	err := e.store.block(ctx, func() (err error) {
		stream, err := e.store.ranger.OpenStream(ctx, e.name, e.size, offset, int64(len(p)-n))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stream.Close()) }()
		m, err := io.ReadFull(stream, p[n:])
		n += m
		return err
	})
	return n, err
}

// forward notes a read, and begins to copy what a reader who goes forward needs next: the more, the
// longer it has gone.
func (r *reader) forward(offset, size int64) {
	from, to := r.track(offset, size)
	for window := from; window < to && window*windowBlocks < r.entry.blocks.count; window++ {
		r.entry.ahead(window)
	}
}

// track finds the track that a read goes on with, or begins one, and returns the windows from and
// before which to copy.
func (r *reader) track(offset, size int64) (from, to int64) {
	r.tracking.Lock()
	defer r.tracking.Unlock()
	r.clock++
	t := &r.tracks[0]
	for i := range r.tracks {
		if candidate := &r.tracks[i]; candidate.used > 0 && offset >= candidate.next &&
			offset-candidate.next <= trackGap {
			t = candidate
			break
		} else if candidate.used < t.used {
			t = candidate
		}
	}
	if t.used == 0 || offset < t.next || offset-t.next > trackGap {
		*t = track{}
	}
	t.next, t.run, t.used = offset+size, t.run+size, r.clock
	if t.run == size { // the first read of a track
		return 0, 0
	}
	window := (offset + size - 1) / windowBytes
	from = max(t.ahead, window+1)
	t.ahead = max(from, window+1+depth(t.run))
	return from, t.ahead
}

// depth returns how many windows ahead of a reader are copied that has read so many bytes in a row.
func depth(run int64) int64 {
	switch {
	case run < blockBytes:
		return 1
	case run < windowBytes:
		return 2
	case run < 3*windowBytes:
		return 4
	default:
		return 6
	}
}

// ahead begins to copy what is missing of a window, unless the store is busy.
func (e *entry) ahead(window int64) {
	for block := window * windowBlocks; block < min((window+1)*windowBlocks, e.blocks.count); block++ {
		if !e.blocks.has(block) {
			_ = e.copy(block, false)
		}
	}
}

// Prefetch implements file.Cached. It copies up to 64 MiB, and less while the store is busy.
func (r *reader) Prefetch(offset, size int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.entry
	if r.closed || offset < 0 || size <= 0 || offset >= e.size || e.whole.Load() {
		return
	}
	first, last := offset/windowBytes, (offset+min(size, e.size-offset)-1)/windowBytes
	for window := first; window <= min(last, first+prefetchMax-1); window++ {
		e.ahead(window)
	}
}

// Forget implements file.Cached. Blocks that are on their way come anyway.
func (r *reader) Forget(offset, size int64) {
	e := r.entry
	if offset < 0 || size <= 0 || offset >= e.size {
		return
	}
	e.lose(offset/blockBytes, (offset+min(size, e.size-offset)-1)/blockBytes)
}

// Size implements file.File.
func (r *reader) Size() int64 { return r.entry.size }

// Close waits for running reads.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return file.ErrClosed
	}
	r.closed = true
	r.entry.store.leave(r.entry)
	return nil
}
