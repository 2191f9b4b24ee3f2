package patch

import (
	"bytes"
	"context"
	"strconv"
)

// hunk is a run of lines as the patch has it.
type hunk struct {
	oldPos, oldLines uint64
	newPos, newLines uint64
	leading          uint64 // lines of context before the first change
	trailing         uint64 // and behind the last

	at       int64 // of its first line, behind the head
	size     int64 // in bytes, from there
	addBytes int64 // the size of its added lines
}

// parseHunkHead reads "@@ -pos,lines +pos,lines @@"; a count of 1 may be left out.
func parseHunkHead(l *line) (hunk, bool) {
	var h hunk
	if !l.ends {
		return h, false
	}
	b, ok := parseRange(l.text[len("@@ -"):], &h.oldPos, &h.oldLines)
	if !ok || !bytes.HasPrefix(b, []byte(" +")) {
		return h, false
	}
	b, ok = parseRange(b[len(" +"):], &h.newPos, &h.newLines)
	return h, ok && bytes.HasPrefix(b, []byte(" @@"))
}

func parseRange(b []byte, pos, lines *uint64) (rest []byte, ok bool) {
	number := func(into *uint64) bool {
		text, rest := cutNumber(b, '9')
		value, err := strconv.ParseUint(string(text), 10, 64)
		*into, b = value, rest
		return err == nil
	}
	if !number(pos) {
		return nil, false
	}
	*lines = 1
	if len(b) > 0 && b[0] == ',' {
		b = b[1:]
		ok := number(lines)
		return b, ok
	}
	return b, true
}

// noteMin is the size of the shortest "\ No newline at end of file", which may be in any language.
const noteMin = 12

// hunk reads the hunk whose head is at an offset, and false if it is corrupt.
func (s *source) hunk(ctx context.Context, at int64) (hunk, bool, error) {
	l, err := s.line(ctx, at)
	if err != nil {
		return hunk{}, false, err
	}
	h, ok := parseHunkHead(&l)
	if !ok {
		return h, false, nil
	}
	h.at = at + l.size
	oldLeft, newLeft := h.oldLines, h.newLines
	changed := false
	added := int64(0) // bytes of the last added line
	for at = h.at; oldLeft > 0 || newLeft > 0; at += l.size {
		if l, err = s.line(ctx, at); err != nil {
			return h, false, err
		}
		if !l.ends {
			return h, false, nil
		}
		kind := l.text[0]
		isOld := kind == ' ' || kind == '\n' || kind == '-'
		isNew := kind == ' ' || kind == '\n' || kind == '+'
		switch {
		case kind == '\\':
			if l.size < noteMin || l.text[1] != ' ' {
				return h, false, nil
			}
			if added > 0 { // its line feed was none
				h.addBytes--
			}
		case !isOld && !isNew, isOld && oldLeft == 0, isNew && newLeft == 0:
			return h, false, nil
		case kind == '-' || kind == '+':
			changed = true
			h.trailing = 0
		default:
			h.trailing++
			if !changed {
				h.leading++
			}
		}
		if isOld {
			oldLeft--
		}
		if isNew {
			newLeft--
		}
		added = 0
		if kind == '+' {
			added = l.size - 1
		}
		h.addBytes += added
	}
	if !changed {
		return h, false, nil
	}
	h.size = at - h.at
	return h, true, s.takeNote(ctx, &h, added > 0)
}

// takeNote takes the note about a missing line feed that may follow a hunk whose counts are used
// up.
func (s *source) takeNote(ctx context.Context, h *hunk, added bool) error {
	end := h.at + h.size
	if s.size-end <= noteMin {
		return nil
	}
	l, err := s.line(ctx, end)
	if err != nil || !l.has(`\ `) {
		return err
	}
	h.size += l.size
	if added {
		h.addBytes--
	}
	return nil
}

// hunks checks the hunks from an offset on and returns the offset behind them.
func (p *parser) hunks(ctx context.Context, at int64, f *file) (int64, error) {
	oldLines, newLines := false, false
	f.hunksAt = at
	for p.size-at > int64(len("@@ -")) {
		l, err := p.line(ctx, at)
		if err != nil {
			return 0, err
		}
		if !l.has("@@ -") {
			break
		}
		h, ok, err := p.hunk(ctx, at)
		if err != nil {
			return 0, err
		}
		if !ok {
			return 0, p.malformed(at, "a corrupt hunk")
		}
		if f.hunkCount++; f.hunkCount > p.limits.HunkCountMax {
			return 0, &LimitError{Limit: "hunks of one file", Max: int64(p.limits.HunkCountMax)}
		}
		oldLines = oldLines || h.oldLines > 0
		newLines = newLines || h.newLines > 0
		f.addBytes += h.addBytes
		at = h.at + h.size
	}
	f.removes = oldLines
	// A file with old lines is not new and one with new lines not deleted; nor is one with several
	// hunks either.
	if f.isNew == open && (oldLines || f.hunkCount > 1) {
		f.isNew = no
	}
	if f.isDelete == open && (newLines || f.hunkCount > 1) {
		f.isDelete = no
	}
	if f.isNew == yes && oldLines {
		return 0, p.malformed(f.hunksAt, "a new file with old lines")
	}
	if f.isDelete == yes && newLines {
		return 0, p.malformed(f.hunksAt, "a deleted file with new lines")
	}
	return at, nil
}
