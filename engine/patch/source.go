package patch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// Sizes in bytes of the parts of a patch in memory.
const (
	windowSize = 256 << 10
	// headMax bounds the part of a line that is parsed: more than any name has. Text of a header
	// behind it is ignored.
	headMax = 64 << 10
)

// source reads lines of a patch through a window, forwards as a rule.
type source struct {
	from io.ReaderAt
	size int64

	window []byte
	start  int64 // offset of the window

	longAt, longSize int64 // the last line that was longer than the window
}

// line is a line of the patch.
type line struct {
	text []byte // its beginning, up to headMax bytes, with its end if that is there; valid until the window moves
	size int64  // with its end
	ends bool   // in a line feed: only the last line may not
}

// has reports whether the line begins with prefix.
func (l *line) has(prefix string) bool { return bytes.HasPrefix(l.text, []byte(prefix)) }

// line returns the line at an offset; its size is 0 at the end of the patch.
func (s *source) line(ctx context.Context, at int64) (line, error) {
	b, err := s.ahead(ctx, at)
	if err != nil || len(b) == 0 {
		return line{}, err
	}
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return line{text: b[:min(i+1, headMax)], size: int64(i) + 1, ends: true}, nil
	}
	if at+int64(len(b)) == s.size {
		return line{text: b[:min(len(b), headMax)], size: int64(len(b))}, nil
	}
	if b, err = s.fill(ctx, at); err != nil {
		return line{}, err
	}
	if i := bytes.IndexByte(b, '\n'); i >= 0 || at+int64(len(b)) == s.size {
		return s.line(ctx, at)
	}
	size, ends, err := s.measure(ctx, at)
	return line{text: b[:headMax], size: size, ends: ends}, err
}

// ahead returns the window from an offset on: headMax bytes or more, or all that is left.
func (s *source) ahead(ctx context.Context, at int64) ([]byte, error) {
	if at >= s.start {
		if i := at - s.start; i <= int64(len(s.window)) {
			if b := s.window[i:]; len(b) >= headMax || at+int64(len(b)) == s.size {
				return b, nil
			}
		}
	}
	return s.fill(ctx, at)
}

// fill moves the window to an offset.
func (s *source) fill(ctx context.Context, at int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := int(min(windowSize, s.size-at))
	if cap(s.window) < n {
		s.window = make([]byte, n)
	}
	s.window, s.start = s.window[:n], at
	if err := s.read(s.window, at); err != nil {
		s.window = s.window[:0]
		return nil, err
	}
	return s.window, nil
}

// read fills b from an offset.
func (s *source) read(b []byte, at int64) error {
	n, err := s.from.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read patch at offset %d: %w", at, err)
}

// measure finds the end of a line that is longer than the window.
func (s *source) measure(ctx context.Context, at int64) (size int64, ends bool, err error) {
	if s.longAt == at && s.longSize > 0 {
		return s.longSize, at+s.longSize < s.size || s.endsIn(at+s.longSize-1), nil
	}
	buffer := make([]byte, windowSize)
	for off := at + int64(len(s.window)); off < s.size; off += int64(len(buffer)) {
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		buffer = buffer[:min(int64(len(buffer)), s.size-off)]
		if err := s.read(buffer, off); err != nil {
			return 0, false, err
		}
		if i := bytes.IndexByte(buffer, '\n'); i >= 0 {
			s.longAt, s.longSize = at, off+int64(i)+1-at
			return s.longSize, true, nil
		}
	}
	s.longAt, s.longSize = at, s.size-at
	return s.longSize, false, nil
}

// endsIn reports whether the byte at an offset is a line feed.
func (s *source) endsIn(at int64) bool {
	var b [1]byte
	return s.read(b[:], at) == nil && b[0] == '\n'
}

// lineNumber counts the lines up to an offset, from 1.
func (s *source) lineNumber(at int64) int64 {
	number := int64(1)
	buffer := make([]byte, windowSize)
	for off := int64(0); off < at; off += int64(len(buffer)) {
		buffer = buffer[:min(int64(len(buffer)), at-off)]
		if s.read(buffer, off) != nil {
			break
		}
		number += int64(bytes.Count(buffer, []byte{'\n'}))
	}
	return number
}
