package object

import (
	"bytes"
	"fmt"
	"math"
)

// CheckError says why git-fsck(1) in strict mode would refuse an object.
type CheckError struct {
	Type   Type
	Name   string // git's name of the check, such as "treeNotSorted"
	Detail string
}

// Error returns the check's name and detail.
func (e *CheckError) Error() string {
	return fmt.Sprintf("object: %s: %s: %s", e.Type, e.Name, e.Detail)
}

// Check returns nil for an object that may be stored: one that git fsck --strict accepts, or that
// has only the three faults common in real histories (badTimezone, missingSpaceBeforeDate,
// zeroPaddedFilemode). Otherwise it returns the first fault found, a [*CheckError].
//
// It judges data alone. [Links] lists the objects that it names; [Dotfile.Check] judges the content
// of a blob that a tree calls .gitmodules or .gitattributes, and [CheckTree] reports which blobs
// those are.
func Check(t Type, data []byte) error {
	switch t {
	case TypeCommit:
		return checkCommit(data)
	case TypeTree:
		return CheckTree(data, TreeCheck{})
	case TypeTag:
		return checkTag(data)
	case TypeBlob:
		return nil
	default:
		return &CheckError{Type: t, Name: "unknownType", Detail: "no type of git"}
	}
}

// checkHeader makes sure that a commit or tag begins with whole lines of text, up to the empty line
// or the end.
func checkHeader(t Type, data []byte) error {
	header, _, hasBody := bytes.Cut(data, []byte("\n\n"))
	if bytes.IndexByte(header, 0) >= 0 {
		return &CheckError{Type: t, Name: "nulInHeader", Detail: "NUL in the header"}
	}
	if !hasBody && (len(data) == 0 || data[len(data)-1] != '\n') {
		return &CheckError{Type: t, Name: "unterminatedHeader", Detail: "header does not end in a newline"}
	}
	return nil
}

func checkCommit(data []byte) error {
	if err := checkHeader(TypeCommit, data); err != nil {
		return err
	}
	fault := func(name, detail string) error { return &CheckError{Type: TypeCommit, Name: name, Detail: detail} }
	line, rest := cutLine(data)
	value, ok := bytes.CutPrefix(line, []byte("tree "))
	if !ok {
		return fault("missingTree", "no tree line")
	}
	if !isHexID(value) {
		return fault("badTreeSha1", "the tree is no object ID")
	}
	for bytes.HasPrefix(rest, []byte("parent ")) {
		line, rest = cutLine(rest)
		if !isHexID(line[len("parent "):]) {
			return fault("badParentSha1", "a parent is no object ID")
		}
	}
	authors := 0
	for bytes.HasPrefix(rest, []byte("author ")) {
		line, rest = cutLine(rest)
		if err := checkSignature(TypeCommit, line[len("author "):]); err != nil {
			return err
		}
		authors++
	}
	if authors == 0 {
		return fault("missingAuthor", "no author line")
	}
	if authors > 1 {
		return fault("multipleAuthors", "several author lines")
	}
	line, _ = cutLine(rest)
	if value, ok = bytes.CutPrefix(line, []byte("committer ")); !ok {
		return fault("missingCommitter", "no committer line")
	}
	if err := checkSignature(TypeCommit, value); err != nil {
		return err
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return fault("nulInCommit", "NUL in the message")
	}
	return nil
}

// tagSizeMin is the length below which git reads no tag.
const tagSizeMin = HexSize + 24

func checkTag(data []byte) error {
	if err := checkHeader(TypeTag, data); err != nil {
		return err
	}
	fault := func(name, detail string) error { return &CheckError{Type: TypeTag, Name: name, Detail: detail} }
	line, rest := cutLine(data)
	value, ok := bytes.CutPrefix(line, []byte("object "))
	if !ok {
		return fault("missingObject", "no object line")
	}
	if !isHexID(value) {
		return fault("badObjectSha1", "the object is no object ID")
	}
	line, rest = cutLine(rest)
	if value, ok = bytes.CutPrefix(line, []byte("type ")); !ok {
		return fault("missingTypeEntry", "no type line")
	}
	if _, err := ParseType(string(value)); err != nil {
		return fault("badType", "no type of git")
	}
	line, rest = cutLine(rest)
	if !bytes.HasPrefix(line, []byte("tag ")) {
		return fault("missingTagEntry", "no tag line")
	}
	if len(data) < tagSizeMin {
		return fault("missingTag", "too short for a tag")
	}
	line, _ = cutLine(rest)
	if value, ok = bytes.CutPrefix(line, []byte("tagger ")); ok {
		return checkSignature(TypeTag, value)
	}
	return nil
}

// checkSignature judges the value of an author, committer or tagger line.
func checkSignature(t Type, line []byte) error {
	fault := func(name, detail string) error { return &CheckError{Type: t, Name: name, Detail: detail} }
	if bytes.HasPrefix(line, []byte("<")) {
		return fault("missingNameBeforeEmail", "no name before the email")
	}
	open := bytes.IndexAny(line, "<>")
	switch {
	case open < 0:
		return fault("missingEmail", "no email")
	case line[open] == '>':
		return fault("badName", "'>' in the name")
	case line[open-1] != ' ':
		return fault("missingSpaceBeforeEmail", "no space before the email")
	}
	line = line[open+1:]
	end := bytes.IndexAny(line, "<>")
	if end < 0 || line[end] == '<' {
		return fault("badEmail", "the email does not end")
	}
	line, ok := bytes.CutPrefix(line[end+1:], []byte{' '})
	if !ok {
		return nil // missingSpaceBeforeDate is tolerated, and git looks no further then
	}
	return checkDate(line, fault)
}

// checkDate judges the seconds in front of the time zone, which may be anything. (git 2.39 also
// finds them on the next line.)
func checkDate(line []byte, fault func(name, detail string) error) error {
	if len(line) > 0 && line[0] == '0' && (len(line) == 1 || line[1] != ' ') {
		return fault("zeroPaddedDate", "zeros before the date")
	}
	line = bytes.TrimLeft(line, whitespace+"\v\f")
	negative := bytes.HasPrefix(line, []byte{'-'})
	if negative || bytes.HasPrefix(line, []byte{'+'}) {
		line = line[1:]
	}
	digits, seconds, overflow := 0, uint64(0), false
	for digits < len(line) && line[digits] >= '0' && line[digits] <= '9' {
		overflow = overflow || seconds > math.MaxInt64/10
		seconds = seconds*10 + uint64(line[digits]-'0')
		digits++
	}
	if overflow || seconds > math.MaxInt64 || negative && seconds > 0 {
		return fault("badDateOverflow", "the date does not fit 63 bits")
	}
	if digits == 0 || digits == len(line) || line[digits] != ' ' {
		return fault("badDate", "no date")
	}
	return nil
}

func cutLine(data []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(data, []byte{'\n'})
	return line, rest
}

func isHexID(value []byte) bool {
	_, ok := parseHex(value)
	return ok && len(value) == HexSize
}
