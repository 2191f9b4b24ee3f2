package patch

import "bytes"

// edit is a hunk taken apart: the lines that it expects, and those that it leaves.
type edit struct {
	old, new           []byte
	oldLines, newLines int
	// oldSizes are the sizes of the old lines, if one of them has no end; nil otherwise.
	oldSizes []int
}

// newEdit takes a hunk apart whose form has been checked.
func newEdit(text []byte) *edit {
	e := &edit{}
	ragged := false
	for kind, content := range hunkLines(text) {
		if kind != '+' {
			ragged = ragged || !bytes.HasSuffix(content, []byte{'\n'})
			e.old = append(e.old, content...)
			e.oldLines++
		}
		if kind != '-' {
			e.new = append(e.new, content...)
			e.newLines++
		}
	}
	if !ragged {
		return e
	}
	for kind, content := range hunkLines(text) {
		if kind != '+' {
			e.oldSizes = append(e.oldSizes, len(content))
		}
	}
	return e
}

// hunkLines yields the lines of a hunk: a blank, a plus or a minus, and the rest of the line.
func hunkLines(text []byte) func(yield func(kind byte, content []byte) bool) {
	return func(yield func(byte, []byte) bool) {
		rest := text
		for len(rest) > 0 {
			whole := rest[:lineSize(rest)]
			rest = rest[len(whole):]
			kind, content := whole[0], whole[1:]
			noted := len(rest) > 0 && rest[0] == '\\' // that the line feed is none
			switch {
			case kind == '\\', kind == '\n' && noted:
				continue
			case kind == '\n': // an empty line of context, as newer tools write it
				kind, content = ' ', whole
			case noted:
				content = content[:len(content)-1]
			}
			if !yield(kind, content) {
				return
			}
		}
	}
}
