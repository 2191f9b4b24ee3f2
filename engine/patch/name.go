package patch

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

// A patch has names in three forms: quoted as C strings, followed by a tab (git's own), and
// followed by the time of the file (diff -u of other tools, sometimes with the tab turned into
// spaces). The functions here get the bytes from the name on, at least to the end of its line, and
// return "" if there is no name.

// space reports whether git's ctype table has c as white space.
func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// lineOf returns the bytes before the first line feed.
func lineOf(b []byte) []byte {
	before, _, _ := bytes.Cut(b, []byte{'\n'})
	return before
}

const null = "/dev/null"

// isNull reports whether the name is /dev/null, which stands for no file.
func isNull(b []byte) bool {
	return len(b) > len(null) && string(b[:len(null)]) == null && space(b[len(null)])
}

// unquote reads a C string; rest is the text after it. Like git it accepts a string that continues
// in the next line.
func unquote(b []byte) (name, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	for b = b[1:]; len(b) > 0; {
		c := b[0]
		b = b[1:]
		switch {
		case c == '"':
			return name, b, true
		case c == 0 || c == '\\' && len(b) == 0:
			return nil, nil, false
		case c != '\\':
			name = append(name, c)
			continue
		}
		if i := strings.IndexByte(`abtnvfr"\`, b[0]); i >= 0 {
			name = append(name, "\a\b\t\n\v\f\r\"\\"[i])
			b = b[1:]
			continue
		}
		if len(b) < 3 || b[0] > '3' {
			return nil, nil, false
		}
		value, err := strconv.ParseUint(string(b[:3]), 8, 8)
		if err != nil {
			return nil, nil, false
		}
		name = append(name, byte(value))
		b = b[3:]
	}
	return nil, nil, false
}

// tidy ends a name at its first NUL, as it ends for git, and makes runs of slashes one.
func tidy(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	name := string(b)
	for strings.Contains(name, "//") {
		name = strings.ReplaceAll(name, "//", "/")
	}
	return name
}

// quotedName reads a quoted name and strips leading folders.
func quotedName(b []byte, strip int) string {
	name, _, ok := unquote(b)
	if !ok {
		return ""
	}
	for range strip {
		_, below, ok := bytes.Cut(name, []byte{'/'})
		if !ok {
			return ""
		}
		name = below
	}
	return tidy(name)
}

// headerName reads the name in a line of a git header. It ends at white space, but for blanks and,
// unless tabEnds, tabs.
func headerName(b []byte, strip int, tabEnds bool) string {
	if name := quotedName(b, strip); name != "" {
		return name
	}
	end := 0
	for end < len(b) && b[end] != '\n' && b[end] != '\r' && (b[end] != '\t' || !tabEnds) {
		end++
	}
	return strippedName(b[:end], "", strip)
}

// strippedName strips leading folders. It is byDefault if nothing is left, or if the name only
// continues byDefault, as "file.orig" does.
func strippedName(b []byte, byDefault string, strip int) string {
	for range strip {
		_, below, ok := bytes.Cut(b, []byte{'/'})
		if !ok {
			return byDefault
		}
		b = below
	}
	if len(b) == 0 || byDefault != "" && len(byDefault) < len(b) && strings.HasPrefix(string(b), byDefault) {
		return byDefault
	}
	return tidy(b)
}

// timestamp is what diff -u writes behind a name, with what separates it.
var timestamp = regexp.MustCompile(
	`(?:\t| +)(?:\d\d)?\d\d-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d+)?)?(?: [-+]\d{4}| [-+]\d\d:\d\d)?$`,
)

// plainName reads the name behind "--- " or "+++ " where there is no git header.
func plainName(b []byte, byDefault string, strip int) string {
	if name := quotedName(b, strip); name != "" {
		return name
	}
	text := lineOf(b)
	if at := timestamp.FindIndex(text); at != nil {
		return strippedName(text[:at[0]], byDefault, strip)
	}
	if i := bytes.IndexAny(text, "\t\r"); i >= 0 {
		text = text[:i]
	}
	return strippedName(text, byDefault, strip)
}

// epoch is the time of an absent file, in any zone.
var epoch = regexp.MustCompile(`^(1969-12-31|1970-01-01) ([0-2]\d):([0-5]\d):00(?:\.0+)? ([-+])([0-2]\d):?([0-5]\d)$`)

// isEpoch reports whether the name in the line is followed by the beginning of Unix time, which
// means that the file does not exist.
func isEpoch(b []byte) bool {
	text := lineOf(b)
	i := bytes.LastIndexByte(text, '\t')
	if i < 0 {
		return false
	}
	m := epoch.FindSubmatch(text[i+1:])
	if m == nil {
		return false
	}
	minutes := func(hours, minutes []byte) int {
		h, _ := strconv.Atoi(string(hours))
		m, _ := strconv.Atoi(string(minutes))
		return 60*h + m
	}
	time, zone := minutes(m[2], m[3]), minutes(m[5], m[6])
	if m[4][0] == '-' {
		zone = -zone
	}
	if m[1][3] == '9' && m[1][2] == '6' { // the day before, west of Greenwich
		time -= 24 * 60
	}
	return time == zone
}

// belowPrefix strips folders as in the line "diff --git a/name b/name"; an absolute name has none.
func belowPrefix(b []byte, strip int) ([]byte, bool) {
	if strip == 0 {
		return b, len(b) == 0 || b[0] != '/'
	}
	for i, c := range b {
		if c != '/' {
			continue
		}
		if strip--; strip == 0 {
			return b[i+1:], i > 0
		}
	}
	return nil, false
}

// commonName reads the names behind "diff --git ", which are the file's name if they are equal: a
// rename has its names in other lines. b begins behind the words and continues behind the line,
// whose size with its end is given.
func commonName(b []byte, size, strip int) string {
	text := b[:size]
	if b[0] == '"' {
		return commonQuoted(b, size, strip)
	}
	name, ok := belowPrefix(text, strip)
	if !ok {
		return ""
	}
	if i := bytes.IndexByte(name, '"'); i >= 0 { // only the second is quoted
		second, _, ok := unquote(b[size-len(name)+i:])
		if !ok {
			return ""
		}
		second, ok = belowPrefix(second, strip)
		if !ok || len(second) >= i || !bytes.HasPrefix(name, second) || !space(name[len(second)]) {
			return ""
		}
		return cString(second)
	}
	name, ok = bytes.CutSuffix(name, []byte{'\n'})
	if !ok {
		return ""
	}
	for i, c := range name {
		if c != ' ' && c != '\t' {
			continue
		}
		second, ok := belowPrefix(name[i+1:], strip)
		if i+1 < len(name) && !ok {
			return ""
		}
		if ok && bytes.Equal(second, name[:i]) {
			return cString(second)
		}
	}
	return ""
}

// commonQuoted is commonName where the first name is quoted; the second must be quoted too.
func commonQuoted(b []byte, size, strip int) string {
	first, rest, ok := unquote(b)
	if !ok {
		return ""
	}
	if first, ok = belowPrefix(first, strip); !ok {
		return ""
	}
	for len(rest) > len(b)-size && space(rest[0]) {
		rest = rest[1:]
	}
	if len(rest) <= len(b)-size {
		return ""
	}
	var second []byte
	if rest[0] == '"' {
		second, _, ok = unquote(rest)
	} else {
		second = rest[:len(rest)-(len(b)-size)]
	}
	if !ok {
		return ""
	}
	if second, ok = belowPrefix(second, strip); !ok || cString(second) != cString(first) {
		return ""
	}
	return cString(first)
}

// cString ends a name at its first NUL.
func cString(b []byte) string {
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}
