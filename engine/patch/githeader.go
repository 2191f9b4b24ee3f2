package patch

import (
	"bytes"
	"context"
	"errors"
	"strconv"
)

// errHeader is a line that is invalid in a git header; it becomes a [SyntaxError].
var errHeader = errors.New("bad header line")

// headerField is a line of a git header. set takes the bytes behind its words, which go on behind
// the line; done ends the header.
type headerField struct {
	words string
	set   func(p *parser, f *file, b []byte) (done bool, err error)
}

// headerFields are tried in this order.
var headerFields = []headerField{
	{"@@ -", func(*parser, *file, []byte) (bool, error) { return true, nil }},
	{"--- ", func(p *parser, f *file, b []byte) (bool, error) { return false, p.agree(&f.oldName, b, f.isNew == yes) }},
	{"+++ ", func(p *parser, f *file, b []byte) (bool, error) {
		return false, p.agree(&f.newName, b, f.isDelete == yes)
	}},
	{"old mode ", func(_ *parser, f *file, b []byte) (bool, error) { return false, setMode(&f.oldMode, b) }},
	{"new mode ", func(_ *parser, f *file, b []byte) (bool, error) { return false, setMode(&f.newMode, b) }},
	{"deleted file mode ", func(p *parser, f *file, b []byte) (bool, error) {
		f.isDelete, f.oldName = yes, p.headerDefault
		return false, setMode(&f.oldMode, b)
	}},
	{"new file mode ", func(p *parser, f *file, b []byte) (bool, error) {
		f.isNew, f.newName = yes, p.headerDefault
		return false, setMode(&f.newMode, b)
	}},
	{"copy from ", func(p *parser, f *file, b []byte) (bool, error) { return p.copied(f, &f.oldName, b), nil }},
	{"copy to ", func(p *parser, f *file, b []byte) (bool, error) { return p.copied(f, &f.newName, b), nil }},
	{"rename old ", func(p *parser, f *file, b []byte) (bool, error) { return p.renamed(f, &f.oldName, b), nil }},
	{"rename new ", func(p *parser, f *file, b []byte) (bool, error) { return p.renamed(f, &f.newName, b), nil }},
	{"rename from ", func(p *parser, f *file, b []byte) (bool, error) { return p.renamed(f, &f.oldName, b), nil }},
	{"rename to ", func(p *parser, f *file, b []byte) (bool, error) { return p.renamed(f, &f.newName, b), nil }},
	{"similarity index ", func(*parser, *file, []byte) (bool, error) { return false, nil }},
	{"dissimilarity index ", func(*parser, *file, []byte) (bool, error) { return false, nil }},
	{"index ", func(_ *parser, f *file, b []byte) (bool, error) { return false, f.setIDs(b) }},
}

// gitHeader reads the header that begins with the "diff --git" at an offset, and returns the offset
// behind it: if that is the next line, there was nothing to read.
func (p *parser) gitHeader(ctx context.Context, at int64, f *file) (int64, error) {
	b, err := p.ahead(ctx, at)
	if err != nil {
		return 0, err
	}
	start := at
	first := bytes.IndexByte(b, '\n') + 1
	if first == 0 {
		return 0, p.malformed(at, "a header line that is too long, or not ended")
	}
	const words = len("diff --git ")
	f.isNew, f.isDelete = no, no
	p.headerDefault = commonName(b[words:], first-words, p.strip)
	for at += int64(first); at < p.size; {
		b, err := p.ahead(ctx, at)
		if err != nil {
			return 0, err
		}
		size := bytes.IndexByte(b, '\n') + 1
		field := fieldOf(b[:size])
		if field == nil {
			break
		}
		done, err := field.set(p, f, b[len(field.words):])
		if err != nil || f.kinds() > 1 {
			return 0, p.malformed(at, "a header line that contradicts the others or cannot be read")
		}
		if done {
			break
		}
		at += int64(size)
	}
	if f.oldName == "" && f.newName == "" {
		f.oldName, f.newName = p.headerDefault, p.headerDefault
	}
	if f.newName == "" && f.isDelete != yes || f.oldName == "" && f.isNew != yes {
		return 0, p.malformed(start, "a header without a file name")
	}
	return at, nil
}

// fieldOf finds the field of a line, nil if it belongs to no header.
func fieldOf(text []byte) *headerField {
	for i := range headerFields {
		if bytes.HasPrefix(text, []byte(headerFields[i].words)) {
			return &headerFields[i]
		}
	}
	return nil
}

// kinds counts the kinds of change that the header declares; more than one contradict each other.
func (f *file) kinds() int {
	n := 0
	for _, is := range []bool{f.isNew == yes, f.isDelete == yes, f.isRename, f.isCopy} {
		if is {
			n++
		}
	}
	return n
}

// copied and renamed read a name without a/ or b/.
func (p *parser) copied(f *file, name *string, b []byte) (done bool) {
	f.isCopy = true
	*name = headerName(b, max(p.strip-1, 0), false)
	return false
}

func (p *parser) renamed(f *file, name *string, b []byte) (done bool) {
	f.isRename = true
	*name = headerName(b, max(p.strip-1, 0), false)
	return false
}

// agree checks the name behind "--- " or "+++ " against the known name, or stores it if none is
// known.
func (p *parser) agree(name *string, b []byte, absent bool) error {
	switch {
	case *name == "" && absent:
		if !isNull(b) {
			return errHeader
		}
	case *name == "":
		*name = headerName(b, p.strip, true)
	case absent, headerName(b, p.strip, true) != *name:
		return errHeader
	}
	return nil
}

// setMode reads an octal number that is followed by white space.
func setMode(mode *uint32, b []byte) error {
	text, rest := cutNumber(bytes.TrimLeft(b, " \t\r"), '7')
	if len(rest) == 0 || !space(rest[0]) {
		return errHeader
	}
	value, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil {
		return errHeader
	}
	*mode = uint32(value)
	return nil
}

// cutNumber cuts the digits up to most from the beginning of b.
func cutNumber(b []byte, most byte) (digits, rest []byte) {
	i := 0
	for i < len(b) && '0' <= b[i] && b[i] <= most {
		i++
	}
	return b[:i], b[i:]
}

const hexSize = 40

// setIDs reads "old..new mode", the IDs abbreviated or not. It ignores other text.
func (f *file) setIDs(b []byte) error {
	text := lineOf(b)
	i := bytes.IndexByte(text, '.')
	if i < 0 || !bytes.HasPrefix(text[i:], []byte("..")) || i > hexSize {
		return nil
	}
	f.oldID = string(text[:i])
	newID, _, ok := bytes.Cut(text[i+len(".."):], []byte{' '})
	if len(newID) > hexSize {
		return nil
	}
	f.newID = string(newID)
	if !ok {
		return nil
	}
	return setMode(&f.oldMode, b[i+len("..")+len(newID)+len(" "):])
}
