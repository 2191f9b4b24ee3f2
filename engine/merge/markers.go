package merge

import (
	"bytes"

	"packhorse/engine/diff/lines"
)

// write puts the merged content together.
func (m *contentMerge) write() (merged []byte, conflicts int) {
	w := contentWriter{contentMerge: m}
	at := 0 // the next line of ours
	for _, p := range m.parts {
		w.lines(m.ours, span{at, p.ours.start - at})
		switch p.taken {
		case oursOnly:
			w.lines(m.ours, p.ours)
		case theirsOnly:
			w.lines(m.theirs, p.theirs)
		case neither:
			w.conflict(p)
			conflicts++
		}
		at = p.ours.end()
	}
	w.lines(m.ours, span{at, m.ours.Count() - at})
	return w.out, conflicts
}

// contentWriter collects a merged content.
type contentWriter struct {
	*contentMerge
	out []byte
	end string // of the lines that a conflict adds
}

func (w *contentWriter) lines(t lines.Text, s span) {
	w.out = append(w.out, t.Range(s.start, s.count)...)
}

// conflict writes both sides between markers.
func (w *contentWriter) conflict(p part) {
	w.end = "\n"
	if w.endsInCR(p) {
		w.end = "\r\n"
	}
	w.marker('<', w.Ours)
	w.whole(w.ours, p.ours)
	w.marker('=', "")
	w.whole(w.theirs, p.theirs)
	w.marker('>', w.Theirs)
}

func (w *contentWriter) marker(sign byte, label string) {
	w.out = append(w.out, bytes.Repeat([]byte{sign}, w.MarkerSize)...)
	if label != "" {
		w.out = append(append(w.out, ' '), label...)
	}
	w.out = append(w.out, w.end...)
}

// whole writes lines, and ends the last one where that has no end.
func (w *contentWriter) whole(t lines.Text, s span) {
	w.lines(t, s)
	if s.count > 0 && w.out[len(w.out)-1] != '\n' {
		w.out = append(w.out, w.end...)
	}
}

// lineEnd is how a content ends its lines.
type lineEnd int

const (
	unknown lineEnd = iota
	lf
	crlf
)

// endsInCR says whether markers end as lines do under Windows: if the lines before the conflict, or
// the first ones, of both sides do so, or if these do not decide, and the base does.
func (m *contentMerge) endsInCR(p part) bool {
	if lineEndAt(m.ours, max(p.ours.start-1, 0)) == lf || lineEndAt(m.theirs, max(p.theirs.start-1, 0)) == lf {
		return false
	}
	return lineEndAt(m.base, 0) == crlf
}

// lineEndAt returns the line end of a line, or the line before it if it is the last one and has no
// end.
func lineEndAt(t lines.Text, index int) lineEnd {
	if t.Count() == 0 {
		return unknown
	}
	line := t.Line(index)
	if line[len(line)-1] != '\n' {
		if index == 0 {
			return unknown
		}
		line = t.Line(index - 1)
	}
	if bytes.HasSuffix(line, []byte("\r\n")) {
		return crlf
	}
	return lf
}
