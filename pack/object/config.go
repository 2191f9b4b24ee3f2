package object

import "strings"

// configParser reads the variables of a file in the format of git-config(1), as far as git itself
// gets.
type configParser struct {
	rest  string
	begun bool
	base  string // "section." or "section.subsection." in front of each key

	section, subsection, key string
	hasSubsection            bool
	value                    string
	hasValue                 bool // a key without '=' has none
}

// next moves to the next variable. It returns false at the end, and where git cannot parse the
// text.
func (p *configParser) next() bool {
	if !p.begun {
		p.rest = strings.TrimPrefix(p.rest, "\ufeff")
		p.begun = true
	}
	for p.rest != "" {
		c := p.take()
		switch {
		case isSpace(c):
		case c == '#' || c == ';':
			p.skipLine()
		case c == '[':
			if !p.header() {
				return false
			}
		case isAlpha(c):
			return p.variable(c)
		default:
			return false
		}
	}
	return false
}

// take returns the next byte: a newline also for CR LF and at the end.
func (p *configParser) take() byte {
	if p.rest == "" {
		return '\n'
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	if c == '\r' && strings.HasPrefix(p.rest, "\n") {
		p.rest = p.rest[1:]
		return '\n'
	}
	return c
}

func (p *configParser) skipLine() { _, p.rest, _ = strings.Cut(p.rest, "\n") }

// header reads [section], [section.subsection] or [section "subsection"] behind the bracket.
func (p *configParser) header() bool {
	var name strings.Builder
	for p.rest != "" {
		c := p.take()
		switch {
		case c == ']':
			p.base = name.String() + "."
			return true
		case isSpace(c):
			if !p.quotedSubsection(&name, c) {
				return false
			}
			p.base = name.String() + "."
			return true
		case isKeyByte(c) || c == '.':
			name.WriteByte(lower(c))
		default:
			return false
		}
	}
	return false
}

// quotedSubsection reads the rest of a header from the white space c on.
func (p *configParser) quotedSubsection(name *strings.Builder, c byte) bool {
	for isSpace(c) {
		if c == '\n' {
			return false
		}
		c = p.take()
	}
	if c != '"' {
		return false
	}
	name.WriteByte('.')
	for {
		c := p.take()
		switch c {
		case '\n':
			return false
		case '"':
			return p.take() == ']'
		case '\\':
			if c = p.take(); c == '\n' {
				return false
			}
		}
		name.WriteByte(c)
	}
}

// variable reads a key that begins with c, and its value.
func (p *configParser) variable(c byte) bool {
	var key strings.Builder
	for isKeyByte(c) {
		key.WriteByte(lower(c))
		if p.rest == "" {
			c = '\n'
			break
		}
		c = p.take()
	}
	for c == ' ' || c == '\t' {
		c = p.take()
	}
	p.value, p.hasValue = "", false
	if c != '\n' {
		if c != '=' {
			return false
		}
		value, ok := p.readValue()
		if !ok {
			return false
		}
		p.value, _, _ = strings.Cut(value, "\x00")
		p.hasValue = true
	}
	p.setName(p.base + key.String())
	return true
}

// setName splits a variable's full name: the section ends at the first dot, the key begins behind
// the last.
func (p *configParser) setName(name string) {
	name, _, _ = strings.Cut(name, "\x00")
	p.section, p.subsection, p.key, p.hasSubsection = "", "", name, false
	first, last := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.')
	if first < 0 {
		return
	}
	p.section, p.key = name[:first], name[last+1:]
	if first < last {
		p.subsection, p.hasSubsection = name[first+1:last], true
	}
}

// readValue reads up to the end of the line: white space at both ends falls away, inside it becomes
// spaces.
func (p *configParser) readValue() (string, bool) {
	var value strings.Builder
	quoted, spaces := false, 0
	for {
		c := p.take()
		switch {
		case c == '\n':
			return value.String(), !quoted
		case isSpace(c) && !quoted:
			if value.Len() > 0 {
				spaces++
			}
			continue
		case (c == ';' || c == '#') && !quoted:
			p.skipLine()
			return value.String(), true
		}
		for ; spaces > 0; spaces-- {
			value.WriteByte(' ')
		}
		switch c {
		case '"':
			quoted = !quoted
		case '\\':
			if !p.escape(&value) {
				return "", false
			}
		default:
			value.WriteByte(c)
		}
	}
}

// escape reads the escape sequence after a backslash in a value.
func (p *configParser) escape(value *strings.Builder) bool {
	switch c := p.take(); c {
	case '\n':
	case 't':
		value.WriteByte('\t')
	case 'b':
		value.WriteByte('\b')
	case 'n':
		value.WriteByte('\n')
	case '\\', '"':
		value.WriteByte(c)
	default:
		return false
	}
	return true
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isAlpha(c byte) bool { c = lower(c); return c >= 'a' && c <= 'z' }

func isKeyByte(c byte) bool { return isAlpha(c) || c >= '0' && c <= '9' || c == '-' }
