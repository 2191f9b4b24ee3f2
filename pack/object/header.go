package object

import "strings"

// Header is a named line of a commit or tag. A value of several lines holds plain newlines; the
// stored continuation lines begin with a space.
type Header struct{ Name, Value string }

// headerReader takes the lines of a commit from the front.
type headerReader struct{ rest string }

// take returns the value of the next line if its keyword is name.
func (r *headerReader) take(name string) (value string, ok bool) {
	if len(r.rest) <= len(name) || r.rest[:len(name)] != name || r.rest[len(name)] != ' ' {
		return "", false
	}
	line, rest, found := strings.Cut(r.rest[len(name)+1:], "\n")
	if !found {
		return "", false
	}
	r.rest = rest
	return line, true
}

// takeID returns the object ID of the next line if its keyword is name and its value an ID.
func (r *headerReader) takeID(name string) (id ID, ok bool) {
	before := r.rest
	value, ok := r.take(name)
	if ok && len(value) == HexSize {
		if id, ok = parseHex([]byte(value)); ok {
			return id, true
		}
	}
	r.rest = before
	return ZeroID, false
}

// next returns the next line with its continuation lines; ok is false at the empty line or at the
// end.
func (r *headerReader) next() (h Header, ok bool) {
	if r.rest == "" || r.rest[0] == '\n' {
		return Header{}, false
	}
	line, rest, _ := strings.Cut(r.rest, "\n")
	name, value, _ := strings.Cut(line, " ")
	if !strings.HasPrefix(rest, " ") {
		r.rest = rest
		return Header{Name: name, Value: value}, true
	}
	var long strings.Builder
	long.WriteString(value)
	for strings.HasPrefix(rest, " ") {
		line, rest, _ = strings.Cut(rest[1:], "\n")
		long.WriteByte('\n')
		long.WriteString(line)
	}
	r.rest = rest
	return Header{Name: name, Value: long.String()}, true
}

// message returns the text after the empty line.
func (r *headerReader) message() string { return strings.TrimPrefix(r.rest, "\n") }

func appendHeader(dst []byte, h Header) []byte {
	dst = append(dst, h.Name...)
	dst = append(dst, ' ')
	value := h.Value
	for {
		line, rest, more := strings.Cut(value, "\n")
		dst = append(dst, line...)
		dst = append(dst, '\n')
		if !more {
			return dst
		}
		dst = append(dst, ' ')
		value = rest
	}
}

func appendIDHeader(dst []byte, name string, id ID) []byte {
	dst = append(dst, name...)
	dst = append(dst, ' ')
	return append(id.AppendHex(dst), '\n')
}

func appendSignatureHeader(dst []byte, name string, s Signature) []byte {
	dst = append(dst, name...)
	dst = append(dst, ' ')
	return append(s.Append(dst), '\n')
}
