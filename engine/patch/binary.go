package patch

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// binaryMethod says how to read the bytes of a binary hunk.
type binaryMethod uint8

const (
	literal   binaryMethod = iota + 1 // the content
	deltified                         // a delta against the content before
)

// binaryHunk is a content, or a delta, that was deflated and spelled in base 85: a line "literal
// 17" or "delta 17" with the size inflated, then lines of
//
//	length | five characters for each four bytes, the last ones filled up      the length is A-Z for 1 to 26, a-z for 27 to 52
//
// and a blank line.
type binaryHunk struct {
	method binaryMethod
	size   int64 // inflated
	at     int64 // of its first line
}

// binary reads the lines after "GIT binary patch": a hunk, and mostly its reverse, which is only
// checked.
func (p *parser) binary(ctx context.Context, at int64, f *file) (int64, error) {
	f.isBinary = true
	forward, end, err := p.binaryHunk(ctx, at)
	if err != nil {
		return 0, err
	}
	if forward.method == 0 {
		return 0, p.malformed(at, "expected a literal or a delta")
	}
	f.binary = forward
	reverse, next, err := p.binaryHunk(ctx, end)
	if reverse.method == 0 || err != nil {
		return end, err
	}
	return next, nil
}

// binaryHunk reads and checks the hunk at an offset, and returns the offset behind its blank line;
// its method is 0 if there is none.
func (p *parser) binaryHunk(ctx context.Context, at int64) (binaryHunk, int64, error) {
	l, err := p.line(ctx, at)
	if err != nil {
		return binaryHunk{}, 0, err
	}
	var h binaryHunk
	var words string
	switch {
	case l.has("delta "):
		h.method, words = deltified, "delta "
	case l.has("literal "):
		h.method, words = literal, "literal "
	default:
		return binaryHunk{}, at, nil
	}
	h.size = looseNumber(l.text[len(words):])
	h.at = at + l.size
	if h.size > p.limits.BlobBytesMax {
		return h, 0, &LimitError{Limit: "size of a binary hunk", Max: p.limits.BlobBytesMax}
	}
	if p.inflated += h.size; p.inflated > p.limits.InflatedBytesMax {
		return h, 0, &LimitError{Limit: "size of all binary hunks", Max: p.limits.InflatedBytesMax}
	}
	encoded := &base85Reader{ctx: ctx, source: p.source, at: h.at}
	err = inflate(io.Discard, encoded, h.size)
	if err == nil {
		_, err = io.Copy(io.Discard, encoded) // the bytes behind the stream must be base 85, too
	}
	if errors.Is(err, errBinary) {
		return h, 0, p.malformed(encoded.at, "a corrupt binary hunk")
	}
	return h, encoded.at, err
}

// looseNumber reads digits behind blanks and up to anything else; a number that is too large is the
// largest.
func looseNumber(b []byte) int64 {
	text, _ := cutNumber(bytes.TrimLeft(b, " \t\r"), '9')
	value, err := strconv.ParseInt(string(text), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return math.MaxInt64
	}
	return value
}

// errBinary is a binary hunk that cannot be read.
var errBinary = errors.New("patch: corrupt binary hunk")

// inflate writes the size bytes that the zlib stream in r holds; it is errBinary if it holds
// others.
func inflate(w io.Writer, r io.Reader, size int64) error {
	stream, err := zlib.NewReader(bufio.NewReader(r))
	if err != nil {
		return binaryFault(err)
	}
	n, err := io.Copy(w, io.LimitReader(stream, size+1))
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	return binaryFault(err)
}

// binaryFault distinguishes errors of the encoding from those of the source.
func binaryFault(err error) error {
	corrupt := err != nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, zlib.ErrHeader) || errors.Is(err, zlib.ErrChecksum) || errors.Is(err, zlib.ErrDictionary) ||
		isFlate(err))
	if corrupt {
		return fmt.Errorf("%w: %w", errBinary, err)
	}
	return err
}
