package pack

import (
	"errors"
	"io"
	"math"
	"slices"
)

// ReadContent appends the current entry's whole content to dst, when nothing of it has been read
// before. The caller has checked its Size: up to 1 MiB of it is allocated at once, the rest as it
// arrives.
//
// Errors: as [Reader.Next]; without a fresh entry [io.EOF].
func (r *Reader) ReadContent(dst []byte) ([]byte, error) {
	if r.err != nil {
		return dst, r.err
	}
	if r.state != stateFresh {
		return dst, io.EOF
	}
	content, err := r.readContent(dst)
	if err != nil {
		return dst, r.fail(r.entryError(err))
	}
	return content, nil
}

func (r *Reader) readContent(dst []byte) ([]byte, error) {
	content, err := r.inflateWindow(dst)
	if !errors.Is(err, errNotInWindow) {
		return content, err
	}
	r.beginStream()
	content, err = readExactly(dst, r.stream, r.entry.Size)
	if err != nil {
		return dst, r.streamError(err)
	}
	return content, r.endStream()
}

var errNotInWindow = errors.New("pack: entry exceeds the window")

// inflateWindow appends the current entry's content to dst if all of the entry fits the window,
// else it returns errNotInWindow.
func (r *Reader) inflateWindow(dst []byte) ([]byte, error) {
	w := r.window
	bound := packedBound(r.entry.Size)
	if bound > windowSize {
		return dst, errNotInWindow
	}
	if err := w.fill(int(bound)); err != nil {
		return dst, err
	}
	content, n, err := r.memory.inflate(dst, w.ahead(), r.entry.Size)
	if err == errShort { //nolint:errorlint // the value itself: this very call ran out of input
		// Rare and legal: so many empty blocks that the stream is longer than its content would ever
		// need.
		return dst, errNotInWindow
	}
	if err != nil {
		return dst, err
	}
	w.pos += n
	return content, r.finish()
}

// packedBound returns how long a zlib stream of size content bytes is at most, from a deflater that
// does not waste space.
func packedBound(size int64) int64 {
	if size > windowSize {
		return math.MaxInt64
	}
	return size + size>>9 + 64
}

// Read implements [io.Reader] over the current entry's content, as it is inflated: of a delta, the
// delta. It returns [io.EOF] at the end, when size and zlib checksum have been verified. Other
// errors: as [Reader.Next].
func (r *Reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.state == stateFresh {
		if err := r.open(); err != nil {
			return 0, r.fail(r.entryError(err))
		}
	}
	switch r.state {
	case stateContent:
		if len(r.content) > 0 {
			n := copy(p, r.content)
			r.content = r.content[n:]
			return n, nil
		}
		r.state = stateDone
	case stateStream:
		n, err := r.readStream(p)
		if err != nil && !errors.Is(err, io.EOF) {
			return n, r.fail(r.entryError(err))
		}
		return n, err
	case stateDone, stateFresh:
	}
	return 0, io.EOF
}

// open makes a fresh entry readable in pieces.
func (r *Reader) open() error {
	content, err := r.inflateWindow(r.buf[:0])
	switch {
	case errors.Is(err, errNotInWindow):
		r.beginStream()
	case err != nil:
		return err
	default:
		r.buf, r.content, r.state = content, content, stateContent
	}
	return nil
}

// beginStream inflates the entry as it is read, for content that is larger than the window.
func (r *Reader) beginStream() {
	r.window.lend()
	r.stream = NewInflater(r.window)
	r.streamLeft = r.entry.Size
	r.state = stateStream
}

// endStream gives back the read-ahead of the inflater.
func (r *Reader) endStream() error {
	r.window.reclaim(r.stream.buffered())
	err := r.stream.Close()
	r.stream = nil
	return errors.Join(err, r.finish())
}

// readStream reads from the stream and returns [io.EOF] when it has ended at the stated size.
func (r *Reader) readStream(p []byte) (int, error) {
	n, err := r.stream.Read(p)
	r.streamLeft -= int64(n)
	switch {
	case r.streamLeft < 0, errors.Is(err, io.EOF) && r.streamLeft > 0:
		return 0, errSize
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, r.streamError(err)
	}
	if err := r.endStream(); err != nil {
		return n, err
	}
	return n, io.EOF
}

// streamError distinguishes a stream that is cut off, because the pack's source has ended or
// failed, from a stream that is invalid.
func (r *Reader) streamError(err error) error {
	if errors.Is(err, errShort) {
		return r.window.endError()
	}
	return err
}

// drain reads the stream to its end.
func (r *Reader) drain() error {
	r.buf = slices.Grow(r.buf[:0], drainSize)
	for {
		if _, err := r.readStream(r.buf[:drainSize]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

const drainSize = 32 << 10
