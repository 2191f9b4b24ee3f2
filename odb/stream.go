package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Object is an open object of any size. Its methods may be called concurrently; the readers that it
// returns belong to one goroutine each.
type Object struct {
	ID   object.ID
	Type object.Type
	Size int64

	source objectSource
}

// objectSource is the source of the content of an Object: memory, a scratch file, a zlib stream, or
// a stream of blocks.
type objectSource interface {
	// open returns content from off on, at least up to off+n. The stream ends only after all its bytes
	// have been verified.
	open(off, n int64) (io.ReadCloser, error)
	io.Closer
}

// Open returns an object of any size as a stream. The caller closes it before the view. ctx bounds
// the reads too.
//
// Errors: [ErrNotFound], [ErrCorrupt].
func (v *View) Open(ctx context.Context, id object.ID) (*Object, error) {
	if hit, ok := v.cachedHot(id); ok {
		return &Object{ID: id, Type: hit.Kind, Size: int64(len(hit.Data)), source: inMemory(hit.Data)}, nil
	}
	at, err := v.Find(ctx, id)
	var o *Object
	if err == nil {
		if o, err = v.openAt(ctx, at); err != nil {
			err = fmt.Errorf("open object %s: %w", id, err)
		}
	}
	if err != nil {
		next, err := v.renewed(ctx, err)
		if next == nil {
			return nil, err
		}
		return next.Open(ctx, id)
	}
	return o, nil
}

// streamedMin is the size in bytes from which a whole entry is inflated as it is read, instead of
// at once.
const streamedMin = mebibyte

func (v *View) openAt(ctx context.Context, at Location) (*Object, error) {
	s, err := at.layer.step(ctx, at)
	if err != nil {
		return nil, err
	}
	o := &Object{ID: at.id, Type: s.Type, Size: s.Size}
	switch {
	case s.Size > streamedMin && !s.Delta:
		o.source, err = openStream(ctx, at)
	case s.Size <= segment.WholeMax:
		var data []byte
		if _, data, err = v.ReadAt(ctx, at); err == nil {
			o.source = inMemory(data)
		}
	default:
		var built *spooled
		if built, err = v.spool(ctx, at); err == nil {
			o.source = scratchSource{built}
		}
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// openStream returns the source of a whole entry: by blocks if it has a table of them that is not
// damaged, and else as the one zlib stream that they make.
func openStream(ctx context.Context, at Location) (objectSource, error) {
	if l, ok := at.layer.(*SegmentLayer); ok {
		blocks, err := openBlocks(ctx, l, at)
		if !errors.Is(err, ErrCorrupt) && (blocks != nil || err != nil) {
			return blocks, err
		}
	}
	return &zlibSource{ctx: ctx, at: at}, nil
}

// WriteTo writes the whole content. An error, also one after the last byte, says that the output
// must not be used. Errors: [ErrCorrupt] and those of w.
func (o *Object) WriteTo(w io.Writer) (int64, error) {
	content, err := o.source.open(0, o.Size)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(w, content)
	if err == nil && n != o.Size {
		err = fmt.Errorf("object %s ended after %d bytes: %w", o.ID, n, io.ErrUnexpectedEOF)
	}
	return n, errors.Join(err, content.Close())
}

// Section returns n bytes from off on, or up to the end of the object, as a stream. The caller
// closes it before the object.
//
// Of a block stream it reads only the blocks in the range. It verifies any other object as a whole
// before it returns the first byte, and inflates it from its beginning.
func (o *Object) Section(off, n int64) (io.ReadCloser, error) {
	off = min(max(off, 0), o.Size)
	n = min(max(n, 0), o.Size-off)
	if z, ok := o.source.(*zlibSource); ok && n < o.Size {
		if err := z.verify(); err != nil {
			return nil, err
		}
	}
	content, err := o.source.open(off, n)
	if err != nil {
		return nil, err
	}
	return limited{Reader: io.LimitReader(content, n), Closer: content}, nil
}

// Close releases the object.
func (o *Object) Close() error { return o.source.Close() }

// limited is a reader that ends before its source does.
type limited struct {
	io.Reader
	io.Closer
}

type inMemory []byte

func (m inMemory) open(off, _ int64) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m[off:])), nil
}

func (inMemory) Close() error { return nil }

type scratchSource struct{ *spooled }

func (s scratchSource) open(off, _ int64) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(s, off, s.Size-off)), nil
}

// zlibSource inflates a whole entry.
type zlibSource struct {
	ctx context.Context // an Object is read within the call that opened it
	at  Location
}

func (z *zlibSource) open(off, _ int64) (io.ReadCloser, error) {
	content, err := z.at.layer.stream(z.ctx, z.at)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, content, off); err != nil {
		return nil, errors.Join(err, content.Close())
	}
	return content, nil
}

// verify reads the entry once, since a part of it proves nothing.
func (z *zlibSource) verify() error {
	e, err := z.at.layer.entry(z.ctx, z.at)
	if err != nil {
		return err
	}
	return z.at.layer.copyPayload(z.ctx, io.Discard, &e)
}

func (z *zlibSource) Close() error { return nil }
