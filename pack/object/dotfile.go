package object

import (
	"bytes"
	"unicode/utf8"
)

// Dotfile is a file that git itself reads from a tree and whose content it therefore checks.
type Dotfile uint8

// The dotfiles that are checked.
const (
	Gitmodules Dotfile = iota + 1
	Gitattributes
)

// String returns the file's name.
func (f Dotfile) String() string {
	switch f {
	case Gitmodules:
		return ".gitmodules"
	case Gitattributes:
		return ".gitattributes"
	default:
		return "unknown"
	}
}

// Check returns nil if a blob may have the name f, and a [*CheckError] otherwise, as git fsck
// --strict does.
func (f Dotfile) Check(blob []byte) error {
	if f == Gitmodules {
		return CheckGitmodules(blob)
	}
	return CheckGitattributes(blob)
}

// Fault returns the [*CheckError] called after f and name, such as "gitmodulesMissing", that git
// fsck finds without reading a blob.
func (f Dotfile) Fault(name, detail string) error {
	return &CheckError{Type: TypeBlob, Name: f.String()[1:] + name, Detail: f.String() + " " + detail}
}

// dotfileNames has, without the dot, the name and the NTFS short name for it if the first short
// names are taken.
var dotfileNames = [...]struct{ name, shortName string }{
	Gitmodules:    {"gitmodules", "gi7eba"},
	Gitattributes: {"gitattributes", "gi7d29"},
}

// Matches reports whether a tree entry called name is the file f on any file system that git runs
// on: HFS+ ignores certain code points, NTFS trailing dots and spaces, case and streams, and has
// short names. A short name of digits alone matches every file.
func (f Dotfile) Matches(name []byte) bool {
	if !suspicious(name) {
		return false
	}
	spelling := &dotfileNames[f]
	if isHFS(name, spelling.name) || isNTFS(name, spelling.name, spelling.shortName) {
		return true
	}
	if f != Gitmodules {
		return false
	}
	for rest, more := name, true; more; {
		if _, rest, more = bytes.Cut(rest, []byte{'\\'}); more && isNTFS(rest, spelling.name, spelling.shortName) {
			return true
		}
	}
	return false
}

// IsDotGit reports whether a tree entry called name is .git on any file system that git runs on, or
// leads into it by a backslash.
func IsDotGit(name []byte) bool {
	if !suspicious(name) {
		return false
	}
	if isHFS(name, "git") || isNTFSDotGit(name) {
		return true
	}
	for rest, more := name, true; more; {
		if _, rest, more = bytes.Cut(rest, []byte{'\\'}); more && isNTFSDotGit(rest) {
			return true
		}
	}
	return false
}

// suspicious reports whether name may be a disguise at all: every disguise has one of these bytes,
// and nearly no other name has.
func suspicious(name []byte) bool {
	return len(name) > 0 && name[0] == '.' || marks(name)&disguiseMark != 0
}

// Marks of the bytes of a name.
const (
	disguiseMark = 1 << iota // in every disguise that does not begin with a period
	slashMark
)

// byteMarks has the marks of each byte.
var byteMarks = func() (of [256]byte) {
	of['~'], of['\\'], of['/'] = disguiseMark, disguiseMark, slashMark
	for c := utf8.RuneSelf; c < len(of); c++ {
		of[c] = disguiseMark
	}
	return of
}()

// marks returns the marks of all bytes of name.
func marks(name []byte) (all byte) {
	for _, c := range name {
		all |= byteMarks[c]
	}
	return all
}

// isHFS reports whether HFS+ takes name for the file called "." + want.
func isHFS(name []byte, want string) bool {
	c, name := nextHFS(name)
	if c != '.' {
		return false
	}
	for i := range len(want) {
		if c, name = nextHFS(name); c >= utf8.RuneSelf || lower(byte(c)) != want[i] {
			return false
		}
	}
	c, _ = nextHFS(name)
	return c == 0 || c == '/'
}

// nextHFS returns the next code point that HFS+ does not ignore, 0 at the end and, as git does, at
// malformed UTF-8.
func nextHFS(name []byte) (rune, []byte) {
	for len(name) > 0 {
		c, n := utf8.DecodeRune(name)
		if c == utf8.RuneError && n == 1 || c == 0xfffe || c == 0xffff {
			return 0, nil
		}
		name = name[n:]
		switch {
		case c >= 0x200c && c <= 0x200f, c >= 0x202a && c <= 0x202e, c >= 0x206a && c <= 0x206f, c == 0xfeff:
		default:
			return c, name
		}
	}
	return 0, nil
}

// isNTFSDotGit reports whether NTFS takes name for .git or its short name.
func isNTFSDotGit(name []byte) bool {
	rest, ok := cutFold(name, ".git")
	if !ok {
		if rest, ok = cutFold(name, "git~1"); !ok {
			return false
		}
	}
	rest = bytes.TrimLeft(rest, ". ")
	return len(rest) == 0 || rest[0] == '\\' || rest[0] == '/' || rest[0] == ':'
}

// isNTFS reports whether NTFS takes name for the file called "." + want: by that name, by one of
// its first four short names (its first six letters, a tilde and a digit), or by one of the later
// ones, which begin with shortName.
func isNTFS(name []byte, want, shortName string) bool {
	rest, ok := cutFold(name, "."+want)
	if !ok {
		if rest, ok = cutFold(name, want[:6]+"~"); ok && len(rest) > 0 && rest[0] >= '1' && rest[0] <= '4' {
			rest = rest[1:]
		} else if rest, ok = cutShortName(name, shortName); !ok {
			return false
		}
	}
	rest = bytes.TrimLeft(rest, ". ")
	return len(rest) == 0 || rest[0] == ':'
}

// cutShortName takes a short name of eight bytes from the front: some of prefix, a tilde, and a
// number that does not begin with 0.
func cutShortName(name []byte, prefix string) (rest []byte, ok bool) {
	const size = 8
	tilde := bytes.IndexByte(name, '~')
	if len(name) < size || tilde < 0 || tilde > len(prefix) || name[tilde+1] == '0' {
		return nil, false
	}
	if _, ok := cutFold(name[:tilde], prefix[:tilde]); !ok {
		return nil, false
	}
	for _, c := range name[tilde+1 : size] {
		if c < '0' || c > '9' {
			return nil, false
		}
	}
	return name[size:], true
}

// cutFold takes prefix, given in lower case, from the front of name, without regard to the case of
// ASCII letters.
func cutFold(name []byte, prefix string) (rest []byte, ok bool) {
	if len(name) < len(prefix) {
		return nil, false
	}
	for i := range len(prefix) {
		if lower(name[i]) != prefix[i] {
			return nil, false
		}
	}
	return name[len(prefix):], true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
