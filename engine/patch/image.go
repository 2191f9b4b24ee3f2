package patch

import (
	"bytes"
	"context"
	"slices"
)

// image is a file while hunks are applied to it: pieces of the old content, and between them the
// results of hunks. The result of a hunk is never searched again.
type image struct {
	pieces []piece
	lines  int
	size   int64

	// Where the last hunk was placed, so that the next one need not count from the beginning.
	near, nearLine int

	work    int64 // bytes compared, with the cost of steps
	workMax int64
}

// piece is a run of whole lines. Where hunks say so, lines inside a patched one have no end; they
// still count.
type piece struct {
	text    []byte
	lines   int
	patched bool
}

func newImage(text []byte, workMax int64) *image {
	m := &image{workMax: workMax}
	if len(text) > 0 {
		m.lines = countLines(text)
		m.size = int64(len(text))
		m.pieces = []piece{{text: text, lines: m.lines}}
	}
	return m
}

func countLines(text []byte) int {
	n := bytes.Count(text, []byte{'\n'})
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}

// bytes returns the file as it is now.
func (m *image) bytes() []byte {
	if len(m.pieces) == 1 {
		return m.pieces[0].text
	}
	text := make([]byte, 0, m.size)
	for i := range m.pieces {
		text = append(text, m.pieces[i].text...)
	}
	return text
}

// place is the beginning of a line: its number from 0, and its position.
type place struct {
	line   int
	piece  int // len(pieces) behind the last line
	offset int // in the piece
}

// seek returns the place of a line. A patched piece is not divided: the place may be its beginning,
// before that line.
func (m *image) seek(number int) place {
	at := place{piece: m.near, line: m.nearLine}
	if at.piece > len(m.pieces) || number < at.line/2 {
		at = place{}
	}
	for at.piece > 0 && at.line > number {
		m.work += stepWork
		at.piece--
		at.line -= m.pieces[at.piece].lines
	}
	for at.piece < len(m.pieces) && at.line+m.pieces[at.piece].lines <= number {
		m.work += stepWork
		at.line += m.pieces[at.piece].lines
		at.piece++
	}
	if at.piece == len(m.pieces) || m.pieces[at.piece].patched {
		return at
	}
	for at.line < number {
		at = m.after(at)
	}
	return at
}

// after returns the next place: behind the line, or behind the whole piece if that is patched.
func (m *image) after(at place) place {
	p := &m.pieces[at.piece]
	m.work += stepWork
	if p.patched {
		return place{line: at.line + p.lines, piece: at.piece + 1}
	}
	at.line++
	size := lineSize(p.text[at.offset:])
	m.work += int64(size)
	if at.offset += size; at.offset == len(p.text) {
		at.piece++
		at.offset = 0
	}
	return at
}

// before returns the place before, and false at the beginning.
func (m *image) before(at place) (place, bool) {
	m.work += stepWork
	if at.offset == 0 {
		if at.piece == 0 {
			return at, false
		}
		at.piece--
		p := &m.pieces[at.piece]
		if p.patched {
			at.line -= p.lines
			return at, true
		}
		at.offset = len(p.text)
	}
	at.line--
	text := m.pieces[at.piece].text[:at.offset-1]
	at.offset = bytes.LastIndexByte(text, '\n') + 1
	m.work += int64(len(text) - at.offset)
	return at, true
}

// lineSize is the size of the first line, with its end.
func lineSize(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i + 1
	}
	return len(text)
}

const (
	// stepWork is the cost of a step of the search, in bytes compared.
	stepWork = 16
	// searchCheck is the number of steps between two checks of the context.
	searchCheck = 256
)

// check returns an error when the limit of work is reached or ctx has ended.
func (m *image) check(ctx context.Context) error {
	if m.work > m.workMax {
		return &LimitError{Limit: "work of finding the places of hunks", Max: m.workMax}
	}
	return ctx.Err()
}

// find looks for the lines of e around the line wanted: there, then one line behind, one before,
// two behind, and so on. With atStart or atEnd they must be there. The extent is the part to
// replace.
func (m *image) find(
	ctx context.Context, e *edit, wanted int, atStart, atEnd bool,
) (at place, extent extent, ok bool, err error) {
	if err := m.check(ctx); err != nil {
		return at, extent, false, err
	}
	last := m.lines - e.oldLines // the last line where they fit
	switch {
	case last < 0, atStart && atEnd && last > 0:
		return at, extent, false, nil
	case atStart:
		at = m.seek(0)
	case atEnd:
		at = m.seek(last)
		if at.line != last { // inside the result of a hunk
			return at, extent, false, nil
		}
	}
	if atStart || atEnd {
		extent, ok = m.match(at, e, atEnd)
		return at, extent, ok, nil
	}
	if wanted < 0 || wanted > m.lines { // git counts in 32 bits, and as unsigned when it compares
		wanted = m.lines
	}
	ahead := m.seek(wanted)
	if ahead.line < wanted {
		ahead = m.after(ahead)
	}
	behind, more := m.seek(wanted), true
	if behind.line == wanted {
		behind, more = m.before(behind)
	}
	for step := 1; more || ahead.line <= last; step++ {
		if m.work > m.workMax || step%searchCheck == 0 {
			if err := m.check(ctx); err != nil {
				return at, extent, false, err
			}
		}
		forwards := ahead.line <= last && (!more || ahead.line-wanted <= wanted-behind.line)
		at = behind
		if forwards {
			at = ahead
		}
		if extent, ok := m.match(at, e, false); ok {
			return at, extent, true, nil
		}
		switch {
		case !forwards:
			behind, more = m.before(behind)
		case ahead.piece == len(m.pieces):
			ahead.line = last + 1
		default:
			ahead = m.after(ahead)
		}
	}
	return at, extent, false, nil
}

// extent is a number of whole lines in pieces that are not patched.
type extent struct {
	lines int
	bytes int
}

// match reports whether the old lines of e are at a place, and with atEnd, whether they end the
// file.
func (m *image) match(at place, e *edit, atEnd bool) (extent, bool) {
	if at.line+e.oldLines > m.lines || atEnd && at.line+e.oldLines != m.lines {
		return extent{}, false
	}
	if e.oldSizes != nil {
		return m.matchRagged(at, e, atEnd)
	}
	old := e.old
	for i := at; len(old) > 0; i = (place{piece: i.piece + 1}) {
		if i.piece == len(m.pieces) || m.pieces[i.piece].patched {
			return extent{}, false
		}
		text := m.pieces[i.piece].text[i.offset:]
		n := min(len(text), len(old))
		m.work += int64(min(n, 256))
		if n > 256 && bytes.Equal(text[:256], old[:256]) {
			m.work += int64(n)
		}
		if !bytes.Equal(text[:n], old[:n]) {
			return extent{}, false
		}
		old = old[n:]
	}
	return extent{lines: e.oldLines, bytes: len(e.old)}, true
}

// matchRagged is match where a line of the hunk has no end. Git then compares each line without its
// white space, as a hash, and the bytes only as far as the hunk has them, so a line without an end
// also matches one with an end.
func (m *image) matchRagged(at place, e *edit, atEnd bool) (extent, bool) {
	var text []byte // the lines at the place
	old := e.old
	for _, size := range e.oldSizes {
		if at.piece == len(m.pieces) || m.pieces[at.piece].patched {
			return extent{}, false
		}
		whole := m.pieces[at.piece].text[at.offset:]
		whole = whole[:lineSize(whole)]
		m.work += int64(len(whole) + size)
		if lineHash(whole) != lineHash(old[:size]) {
			return extent{}, false
		}
		old = old[size:]
		text = append(text, whole...)
		at = m.after(at)
	}
	if !bytes.HasPrefix(text, e.old) || atEnd && len(text) != len(e.old) {
		return extent{}, false
	}
	return extent{lines: e.oldLines, bytes: len(text)}, true
}

// lineHash is git's hash of a line.
func lineHash(text []byte) uint32 {
	var h uint32
	for _, c := range text {
		if !space(c) {
			h = h*3 + uint32(c)
		}
	}
	return h & 0xffffff
}

// replace puts the new lines of e in the place of an extent that match has found there.
func (m *image) replace(at place, gone extent, e *edit) {
	first, last := at.piece, at.piece // last is behind the pieces that are taken apart
	parts := make([]piece, 0, 3)
	begun := 0 // lines of the first piece before the place
	if at.offset > 0 {
		before := m.pieces[first].text[:at.offset]
		begun = countLines(before)
		m.work += int64(len(before))
		parts = append(parts, piece{text: before, lines: begun})
	}
	m.near, m.nearLine = first, at.line-begun
	if e.newLines > 0 {
		parts = append(parts, piece{text: e.new, lines: e.newLines, patched: true})
	}
	m.lines += e.newLines - gone.lines
	m.size += int64(len(e.new)) - int64(gone.bytes)
	for offset := at.offset; gone.bytes > 0 || offset > 0; {
		p := m.pieces[last]
		last++
		p.text, p.lines = p.text[offset:], p.lines-begun
		if len(p.text) > gone.bytes {
			parts = append(parts, piece{text: p.text[gone.bytes:], lines: p.lines - gone.lines})
			break
		}
		gone.bytes -= len(p.text)
		gone.lines -= p.lines
		offset, begun = 0, 0
	}
	m.work += int64(len(m.pieces)-last) * stepWork // which may have to move
	m.pieces = slices.Replace(m.pieces, first, last, parts...)
}
