package pathpolicy

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// fold returns the spelling that stands for all spellings of a path, or of a glob, that some file
// system takes for one: in any case, with the code points that HFS+ ignores, and on NTFS with dots
// and spaces behind a name. Bytes that are no UTF-8 stay.
func fold(path string) string {
	if isPlain(path) {
		return strings.ToUpper(path)
	}
	var out strings.Builder
	out.Grow(len(path))
	for i, name := range strings.Split(path, "/") {
		if i > 0 {
			out.WriteByte('/')
		}
		foldName(&out, name)
	}
	return out.String()
}

// isPlain reports whether only the case of letters can differ between spellings.
func isPlain(path string) bool {
	for i := range len(path) {
		if c := path[i]; c >= utf8.RuneSelf || (c == '.' || c == ' ') && (i+1 == len(path) || path[i+1] == '/') {
			return false
		}
	}
	return true
}

func foldName(out *strings.Builder, name string) {
	if trimmed := strings.TrimRight(name, ". "); trimmed != "" {
		name = trimmed
	}
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		switch {
		case r == utf8.RuneError && size == 1:
			out.WriteByte(name[0])
		case isIgnored(r):
		default:
			out.WriteRune(least(r))
		}
		name = name[size:]
	}
}

// least returns the first of the code points that are equal but for their case.
func least(r rune) rune {
	first := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		first = min(first, next)
	}
	return first
}

// isIgnored reports whether HFS+ ignores a code point in names: next_hfs_char in git's utf8.c lists
// them.
func isIgnored(r rune) bool {
	return r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff
}
