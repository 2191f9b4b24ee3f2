package lines

import (
	"context"
	"io"
	"strconv"
	"unicode/utf8"

	"packhorse/odb/fair"
)

// ContextDefault is the number of unchanged lines that git diff shows around changes.
const ContextDefault = 3

// WriteHunks writes changes as unified hunks, each with up to around unchanged lines before and
// behind, and in its header the last line before it that looks like the beginning of a function.
// The changes are those of [Diff] for the same texts. It writes 32 KiB at a time, or a longer line
// at once.
//
// Errors: that of ctx, and those of w.
func WriteHunks(ctx context.Context, w io.Writer, before, after Text, changes []Change, around int) error {
	h := hunkWriter{ctx: ctx, to: w, old: before, fresh: after, around: around, searched: -1}
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].OldStart-changes[n-1].OldStart-changes[n-1].OldCount <= 2*around {
			n++
		}
		if err := h.hunk(changes[:n]); err != nil {
			return err
		}
		changes = changes[n:]
	}
	return h.flush()
}

// hunkWriter writes hunks.
type hunkWriter struct {
	ctx        context.Context // a writer is used within one call
	to         io.Writer
	out        []byte // not written yet
	old, fresh Text
	around     int
	searched   int // the old line up to which headers have been searched for functions
	function   []byte
}

// flushSize is the number of bytes of a write.
const flushSize = 32 << 10

func (h *hunkWriter) flush() error {
	if err := fair.Pause(h.ctx); err != nil {
		return err
	}
	_, err := h.to.Write(h.out)
	h.out = h.out[:0]
	return err
}

func (h *hunkWriter) hunk(changes []Change) error {
	first, last := changes[0], changes[len(changes)-1]
	oldStart, newStart := max(first.OldStart-h.around, 0), max(first.NewStart-h.around, 0)
	oldEnd, newEnd := last.OldStart+last.OldCount, last.NewStart+last.NewCount
	behind := min(h.around, h.old.Count()-oldEnd, h.fresh.Count()-newEnd)
	h.header(oldStart, oldEnd+behind-oldStart, newStart, newEnd+behind-newStart)
	at := newStart
	for _, c := range changes {
		if err := h.lines(' ', h.fresh, at, c.NewStart-at); err != nil {
			return err
		}
		if err := h.lines('-', h.old, c.OldStart, c.OldCount); err != nil {
			return err
		}
		if err := h.lines('+', h.fresh, c.NewStart, c.NewCount); err != nil {
			return err
		}
		at = c.NewStart + c.NewCount
	}
	return h.lines(' ', h.fresh, at, behind)
}

// header writes the line that begins a hunk.
func (h *hunkWriter) header(oldStart, oldCount, newStart, newCount int) {
	h.out = appendRange(append(h.out, "@@ -"...), oldStart, oldCount)
	h.out = appendRange(append(h.out, " +"...), newStart, newCount)
	h.out = append(h.out, " @@"...)
	if h.findFunction(oldStart); len(h.function) > 0 {
		h.out = append(append(h.out, ' '), h.function...)
	}
	h.out = append(h.out, '\n')
}

// lines writes lines with a sign before each.
func (h *hunkWriter) lines(sign byte, t Text, index, count int) error {
	for i := index; i < index+count; i++ {
		line := t.Line(i)
		h.out = append(h.out, sign)
		if len(h.out)+len(line) > flushSize {
			if err := h.flush(); err != nil {
				return err
			}
		}
		if len(line) > flushSize {
			if _, err := h.to.Write(line); err != nil {
				return err
			}
		} else {
			h.out = append(h.out, line...)
		}
		if line[len(line)-1] != '\n' {
			h.out = append(h.out, "\n\\ No newline at end of file\n"...)
		}
	}
	return nil
}

// appendRange appends the position of lines, counted from 1. The position of an empty range is that
// of the line before it.
func appendRange(b []byte, start, count int) []byte {
	if count > 0 {
		start++
	}
	b = strconv.AppendInt(b, int64(start), 10)
	if count != 1 {
		b = strconv.AppendInt(append(b, ','), int64(count), 10)
	}
	return b
}

// findFunction looks for the function that a hunk at the old line start lies in, back to where the
// last search began.
func (h *hunkWriter) findFunction(start int) {
	for i := start - 1; i > h.searched; i-- {
		if name := functionName(h.old.Line(i)); name != nil {
			h.function = name
			break
		}
	}
	h.searched = start - 1
}

// functionSize is the part of a line in bytes that a header shows.
const functionSize = 80

// BeginsFunction reports whether a line looks like the beginning of a function, to git where
// nothing is known about the language: it begins with a letter, an underscore or a dollar.
func BeginsFunction(line []byte) bool {
	c := line[0]
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '$'
}

// functionName returns the part of a line that begins a function which a header shows. It is nil
// for other lines.
func functionName(line []byte) []byte {
	if !BeginsFunction(line) {
		return nil
	}
	line = line[:min(len(line), functionSize)]
	for isSpace(line[len(line)-1]) {
		line = line[:len(line)-1]
	}
	return line[:validSize(line)]
}

// isSpace reports whether git treats c as white space.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// validSize returns the size of the part of a line before the first byte that is not part of a
// character in UTF-8; git takes U+FFFE and U+FFFF for none.
func validSize(line []byte) int {
	n := 0
	for n < len(line) {
		r, size := utf8.DecodeRune(line[n:])
		if r == utf8.RuneError && size == 1 || r == 0xfffe || r == 0xffff {
			break
		}
		n += size
	}
	return n
}
