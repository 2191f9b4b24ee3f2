package lines

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"unicode/utf8"
)

// ContextDefault is how many unchanged lines git diff shows around changes.
const ContextDefault = 3

// WriteHunks writes changes as unified hunks, each with up to around unchanged lines before and behind, and in its header the last line
// before it that looks like the beginning of a function. The changes are those of [Diff] for the same texts.
//
// Errors: that of ctx, and those of w.
func WriteHunks(ctx context.Context, w io.Writer, old, new Text, changes []Change, around int) error {
	h := hunkWriter{Writer: bufio.NewWriterSize(w, 32<<10), old: old, new: new, around: around, searched: -1}
	for len(changes) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := 1
		for n < len(changes) && changes[n].OldStart-changes[n-1].OldStart-changes[n-1].OldCount <= 2*around {
			n++
		}
		h.hunk(changes[:n])
		changes = changes[n:]
	}
	return h.Flush()
}

// hunkWriter writes hunks. Its bufio.Writer keeps the first error for Flush.
type hunkWriter struct {
	*bufio.Writer
	old, new Text
	around   int
	searched int // the old line up to which headers have been searched for functions
	function []byte
}

func (h *hunkWriter) hunk(changes []Change) {
	first, last := changes[0], changes[len(changes)-1]
	oldStart, newStart := max(first.OldStart-h.around, 0), max(first.NewStart-h.around, 0)
	oldEnd, newEnd := last.OldStart+last.OldCount, last.NewStart+last.NewCount
	behind := min(h.around, h.old.Count()-oldEnd, h.new.Count()-newEnd)
	h.header(oldStart, oldEnd+behind-oldStart, newStart, newEnd+behind-newStart)
	at := newStart
	for _, c := range changes {
		h.lines(' ', h.new, at, c.NewStart-at)
		h.lines('-', h.old, c.OldStart, c.OldCount)
		h.lines('+', h.new, c.NewStart, c.NewCount)
		at = c.NewStart + c.NewCount
	}
	h.lines(' ', h.new, at, behind)
}

// header writes the line that begins a hunk.
func (h *hunkWriter) header(oldStart, oldCount, newStart, newCount int) {
	var buffer [160]byte
	line := appendRange(append(buffer[:0], "@@ -"...), oldStart, oldCount)
	line = appendRange(append(line, " +"...), newStart, newCount)
	line = append(line, " @@"...)
	if h.findFunction(oldStart); len(h.function) > 0 {
		line = append(append(line, ' '), h.function...)
	}
	h.Write(append(line, '\n'))
}

// appendRange appends where lines stand, counted from 1. A range of none is said to stand behind the line before it.
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

// lines writes lines with a sign before each.
func (h *hunkWriter) lines(sign byte, t Text, index, count int) {
	for i := index; i < index+count; i++ {
		line := t.Line(i)
		h.WriteByte(sign)
		h.Write(line)
		if line[len(line)-1] != '\n' {
			h.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// findFunction looks for the function that a hunk at the old line start lies in, back to where the last search began.
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

// functionName returns what a header shows of a line that looks like the beginning of a function, to git where nothing is known about the
// language: it begins with a letter, an underscore or a dollar. It is nil for other lines.
func functionName(line []byte) []byte {
	switch c := line[0]; {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == '$':
	default:
		return nil
	}
	line = line[:min(len(line), functionSize)]
	for isSpace(line[len(line)-1]) {
		line = line[:len(line)-1]
	}
	return line[:validSize(line)]
}

// isSpace says what git takes for white space.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// validSize returns the size of the part of a line before the first byte that is not part of a character in UTF-8; git takes U+FFFE and
// U+FFFF for none.
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
