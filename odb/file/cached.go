package file

import (
	"context"
	"io"
)

// Cached is implemented by a [File] whose bytes are copied from afar before they are read. Its
// methods may be called concurrently; a range that reaches beyond the file is cut off at its end.
type Cached interface {
	// Prefetch says that size bytes from offset on are read soon. It waits for nothing.
	Prefetch(offset, size int64)

	// Forget discards the copy of size bytes from offset on, which have failed a check: the next read
	// copies them again.
	Forget(offset, size int64)
}

// Caching is implemented by a [Store] whose files are [Cached].
type Caching interface {
	// Remote returns the store that the bytes are copied from. Who reads all of it once reads there,
	// and leaves the copies to others.
	Remote() Store
}

// Forget reports whether r is [Cached], and then discards its copy of size bytes from offset on.
func Forget(r ReaderAt, offset, size int64) bool {
	cached, ok := r.(Cached)
	if ok {
		cached.Forget(offset, size)
	}
	return ok
}

const (
	// AheadBytes is how far beyond a reader that goes forward a [Cached] is told to copy.
	AheadBytes = 64 << 20
	// aheadStep is the least size of what it is told at once.
	aheadStep = 8 << 20
)

// Ahead tells a [Cached] what a reader that goes forward reads next. It does nothing for any other
// file. It is for one goroutine.
type Ahead struct {
	cached Cached
	told   int64 // the offset up to which it was told
	end    int64
}

// NewAhead returns the Ahead of a reader of what lies before end.
func NewAhead(r ReaderAt, end int64) Ahead {
	cached, _ := r.(Cached)
	return Ahead{cached: cached, end: end}
}

// At says that the reader has come to offset.
func (a *Ahead) At(offset int64) {
	if a.cached == nil {
		return
	}
	from, to := max(a.told, offset), min(offset+AheadBytes, a.end)
	if from < to && (to == a.end || to-from >= aheadStep) {
		a.cached.Prefetch(from, to-from)
		a.told = to
	}
}

// NewSectionReader returns a reader of size bytes of r from offset on, which reads under ctx.
func NewSectionReader(ctx context.Context, r ReaderAt, offset, size int64) *io.SectionReader {
	return io.NewSectionReader(&bound{ctx: ctx, r: r}, offset, size)
}

// NewReader returns a reader of f from its begin to its end, which reads under ctx and has a
// [Cached] copy ahead.
func NewReader(ctx context.Context, f File) io.Reader {
	r := &bound{ctx: ctx, r: f, ahead: NewAhead(f, f.Size())}
	return io.NewSectionReader(r, 0, f.Size())
}

// bound is a ReaderAt with the context of its reads.
type bound struct {
	ctx   context.Context // of the call that the reader is for
	r     ReaderAt
	ahead Ahead // of the zero value, tells nothing
}

func (b *bound) ReadAt(p []byte, offset int64) (int, error) {
	b.ahead.At(offset)
	return b.r.ReadAt(b.ctx, p, offset)
}
