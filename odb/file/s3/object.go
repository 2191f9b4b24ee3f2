package s3

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"packhorse/odb/file"
)

// tailBytes is how much of the end of a file Open asks for and keeps: that is where a reader
// begins.
const tailBytes = 16 << 10

// object is a sealed file.
type object struct {
	store  *Store
	name   string
	size   int64
	tail   []byte // the last bytes
	closed atomic.Bool
}

// Open implements file.Store. It sends one request, which tells the size and brings the end of the
// file.
func (s *Store) Open(ctx context.Context, name string) (file.File, error) {
	size, stream, err := s.OpenTail(ctx, name, tailBytes)
	if err != nil {
		return nil, err
	}
	tail, err := io.ReadAll(stream)
	if err := errors.Join(err, stream.Close()); err != nil {
		return nil, err
	}
	return &object{store: s, name: name, size: size, tail: tail}, nil
}

// ReadAt implements file.File. It sends a request for each range that is not within the end of the
// file.
func (o *object) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	switch {
	case o.closed.Load():
		return 0, file.ErrClosed
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case offset < 0:
		return 0, file.ErrRange
	case offset >= o.size && len(p) > 0:
		return 0, io.EOF
	}
	wanted := p[:max(0, min(int64(len(p)), o.size-offset))]
	if begin := o.size - int64(len(o.tail)); offset >= begin {
		copy(wanted, o.tail[min(offset-begin, int64(len(o.tail))):])
	} else if n, err := o.read(ctx, wanted, offset); err != nil {
		return n, err
	}
	if len(wanted) < len(p) {
		return len(wanted), io.EOF
	}
	return len(wanted), nil
}

func (o *object) read(ctx context.Context, p []byte, offset int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	stream := o.store.stream(ctx, o.name, o.size, offset, offset+int64(len(p)))
	n, err := io.ReadFull(stream, p)
	return n, errors.Join(err, stream.Close())
}

// Size implements file.File.
func (o *object) Size() int64 { return o.size }

// Close implements file.File.
func (o *object) Close() error {
	if o.closed.Swap(true) {
		return file.ErrClosed
	}
	return nil
}
