package pktline

import (
	"errors"
	"fmt"
	"io"
)

// Reader reads lines. It reads ahead; [Reader.Rest] returns the bytes after the lines, such as a
// pack.
type Reader struct {
	src        io.Reader
	buf        []byte
	start, end int // buf[start:end] is read and not yet returned
}

// windowSizeFirst suits requests of a few lines; the window grows to the longest line when one
// needs it.
const windowSizeFirst = 4 << 10

// NewReader returns a Reader of the lines in src.
func NewReader(src io.Reader) *Reader { return &Reader{src: src} }

// Read returns the next line. payload is nil unless kind is [Data], and stays valid until the next
// call.
//
// Errors: [io.EOF] when the input ends before a line, [io.ErrUnexpectedEOF] inside one,
// [ErrLength], [ErrTooLong], and those of the source.
func (r *Reader) Read() (kind Kind, payload []byte, err error) {
	if err := r.fill(lengthSize); err != nil {
		return Data, nil, err
	}
	digits := r.buf[r.start : r.start+lengthSize]
	length, ok := parseLength(digits)
	switch {
	case !ok, length == 3:
		return Data, nil, fmt.Errorf("%w: %q", ErrLength, digits)
	case length < 3:
		r.start += lengthSize
		return Flush + Kind(length), nil, nil
	case length-lengthSize > PayloadMax:
		return Data, nil, fmt.Errorf("%w: %d bytes", ErrTooLong, length)
	}
	if err := r.fill(length); err != nil {
		return Data, nil, noEOF(err)
	}
	payload = r.buf[r.start+lengthSize : r.start+length : r.start+length]
	r.start += length
	return Data, payload, nil
}

// fill makes sure that n bytes are in the window. Errors: [io.EOF] only when the window is empty.
func (r *Reader) fill(n int) error {
	if r.end-r.start >= n {
		return nil
	}
	if cap(r.buf)-r.start < n {
		r.slide(n)
	}
	for empty := 0; r.end-r.start < n; {
		got, err := r.src.Read(r.buf[r.end:])
		r.end += got
		switch {
		case r.end-r.start >= n:
			return nil
		case err == nil && got == 0:
			if empty++; empty == readsEmptyMax {
				return io.ErrNoProgress
			}
		case err == nil:
			empty = 0
		case errors.Is(err, io.EOF) && r.end > r.start:
			return io.ErrUnexpectedEOF
		default:
			return err
		}
	}
	return nil
}

// readsEmptyMax is how often in a row a source may return nothing, as in package bufio.
const readsEmptyMax = 100

// slide moves the window's bytes to its front and grows it to hold n.
func (r *Reader) slide(n int) {
	buf := r.buf
	switch {
	case n > len(buf) && len(buf) > 0:
		buf = make([]byte, lengthSize+PayloadMax)
	case len(buf) == 0:
		buf = make([]byte, max(n, windowSizeFirst))
	}
	r.end = copy(buf, r.buf[r.start:r.end])
	r.start, r.buf = 0, buf
}

// Rest returns a reader of the bytes after the lines read so far. The Reader must not be used any
// more.
func (r *Reader) Rest() io.Reader {
	rest := &restReader{ahead: r.buf[r.start:r.end], src: r.src}
	r.start = r.end
	return rest
}

type restReader struct {
	ahead []byte
	src   io.Reader
}

func (r *restReader) Read(p []byte) (int, error) {
	if len(r.ahead) == 0 {
		return r.src.Read(p)
	}
	n := copy(p, r.ahead)
	r.ahead = r.ahead[n:]
	return n, nil
}

// parseLength reads four hexadecimal digits, in either case as git does.
func parseLength(digits []byte) (length int, ok bool) {
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		length = length<<4 | int(c)
	}
	return length, true
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
