package diff

import (
	"bytes"
	"strconv"
)

// devNull stands for an absent file.
const devNull = "/dev/null"

// appendHeader appends the extended header of gitdiff(1): names, modes, renames, and the IDs. The
// extended lines may be empty before a change of lines, but a header without a body is only written
// if it has some.
func (p *part) appendHeader(dst []byte) []byte {
	c := &p.change
	dst = append(dst, "diff --git "...)
	dst = appendQuoted(dst, "a/", c.Old.Path)
	dst = append(dst, ' ')
	dst = appendQuoted(dst, "b/", c.New.Path)
	dst = append(dst, '\n')
	switch {
	case !c.Old.Exists():
		dst = appendMode(append(dst, "new file mode "...), &c.New)
	case !c.New.Exists():
		dst = appendMode(append(dst, "deleted file mode "...), &c.Old)
	case c.Old.Mode != c.New.Mode:
		dst = appendMode(append(dst, "old mode "...), &c.Old)
		dst = appendMode(append(dst, "new mode "...), &c.New)
	}
	if c.Status == Renamed {
		dst = append(dst, "similarity index "...)
		dst = strconv.AppendInt(dst, int64(Percent(c.Score)), 10)
		dst = appendQuoted(append(dst, "%\nrename from "...), "", c.Old.Path)
		dst = appendQuoted(append(dst, "\nrename to "...), "", c.New.Path)
		dst = append(dst, '\n')
	}
	if c.Old.ID != c.New.ID {
		dst = c.Old.ID.AppendHex(append(dst, "index "...))
		dst = c.New.ID.AppendHex(append(dst, ".."...))
		if c.Old.Mode == c.New.Mode {
			dst = appendMode(append(dst, ' '), &c.Old)
		} else {
			dst = append(dst, '\n')
		}
	}
	return dst
}

func appendMode(dst []byte, e *Entry) []byte {
	return append(append(dst, e.Mode.String()...), '\n')
}

// appendFileNames appends the two lines before the first hunk.
func (p *part) appendFileNames(dst []byte) []byte {
	dst = appendFileName(append(dst, "--- "...), "a/", &p.change.Old)
	return appendFileName(append(dst, "+++ "...), "b/", &p.change.New)
}

// appendFileName appends a name to its line. A tab behind it keeps a name with blanks in it from
// being taken for a name and a time.
func appendFileName(dst []byte, prefix string, e *Entry) []byte {
	start := len(dst)
	dst = appendSideName(dst, prefix, e)
	if bytes.IndexByte(dst[start:], ' ') >= 0 {
		dst = append(dst, '\t')
	}
	return append(dst, '\n')
}

func appendSideName(dst []byte, prefix string, e *Entry) []byte {
	if !e.Exists() {
		return append(dst, devNull...)
	}
	return appendQuoted(dst, prefix, e.Path)
}

// appendBinaryNotice appends the line that stands for a binary content.
func (p *part) appendBinaryNotice(dst []byte) []byte {
	dst = appendSideName(append(dst, "Binary files "...), "a/", &p.change.Old)
	dst = appendSideName(append(dst, " and "...), "b/", &p.change.New)
	return append(dst, " differ\n"...)
}
