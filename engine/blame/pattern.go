package blame

import (
	"errors"
	"fmt"
	"strings"
)

// Reasons why a pattern cannot be translated.
var (
	errBackReference = errors.New("the pattern refers back to a group, which RE2 does not support")
	errBracket       = errors.New("the pattern has a bracket expression that RE2 does not support")
	errUnfinished    = errors.New("the pattern ends too early")
	errWordEdge      = errors.New("the pattern has a word boundary that RE2 does not support")
)

// translate makes of a basic regular expression, as GNU regex reads it for git, one for package
// regexp that matches the same lines.
func translate(pattern string) (string, error) {
	t := translator{from: pattern}
	for t.at < len(pattern) {
		if err := t.next(); err != nil {
			return "", err
		}
	}
	return t.out.String(), nil
}

// translator is one call of translate.
type translator struct {
	from  string
	at    int
	out   strings.Builder
	begun bool // a repeatable item precedes, since the last beginning of an alternative
}

func (t *translator) next() error {
	c := t.from[t.at]
	t.at++
	switch c {
	case '\\':
		return t.escape()
	case '[':
		t.begun = true
		return t.bracket()
	case '*':
		if !t.begun {
			t.literal(c)
			return nil
		}
		t.out.WriteString("*")
	case '.':
		t.out.WriteByte('.')
		t.begun = true
	case '^':
		if !t.begun && t.atBeginning() {
			t.out.WriteByte('^')
			return nil
		}
		t.literal(c)
	case '$':
		if rest := t.from[t.at:]; rest == "" || strings.HasPrefix(rest, `\)`) || strings.HasPrefix(rest, `\|`) {
			t.out.WriteByte('$')
			t.begun = true
			return nil
		}
		t.literal(c)
	default:
		t.literal(c)
	}
	return nil
}

// atBeginning reports whether the character before t.at is at the beginning of an alternative.
func (t *translator) atBeginning() bool {
	before := t.from[:t.at-1]
	return before == "" || strings.HasSuffix(before, `\(`) || strings.HasSuffix(before, `\|`)
}

// literal writes a character that means itself.
func (t *translator) literal(c byte) {
	if strings.IndexByte(`\.+*?()|[]{}^$`, c) >= 0 {
		t.out.WriteByte('\\')
	}
	t.out.WriteByte(c)
	t.begun = true
}

// escape translates an escape sequence, behind its backslash.
func (t *translator) escape() error {
	if t.at == len(t.from) {
		return errUnfinished
	}
	c := t.from[t.at]
	t.at++
	switch c {
	case '(':
		t.out.WriteByte('(')
		t.begun = false
	case ')':
		t.out.WriteByte(')')
		t.begun = true
	case '|':
		t.out.WriteByte('|')
		t.begun = false
	case '{':
		return t.interval()
	case '+', '?':
		if !t.begun {
			t.literal(c)
			return nil
		}
		t.out.WriteString(string(c))
	case 'w', 'W', 's', 'S', 'b', 'B':
		t.out.WriteString(`\` + string(c))
		t.begun = true
	case '`':
		t.out.WriteByte('^')
	case '\'':
		t.out.WriteByte('$')
	case '<':
		if t.at == len(t.from) || !isWord(t.from[t.at]) {
			return errWordEdge
		}
		t.out.WriteString(`\b`)
	case '>':
		if t.at < len("x\\>") || !isWord(t.from[t.at-3]) || t.at >= 4 && t.from[t.at-4] == '\\' {
			return errWordEdge
		}
		t.out.WriteString(`\b`)
		t.begun = true
	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return errBackReference
	default:
		t.literal(c)
	}
	return nil
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// interval translates \{from,to\}.
func (t *translator) interval() error {
	size := strings.Index(t.from[t.at:], `\}`)
	if size < 0 {
		return errUnfinished
	}
	bounds := t.from[t.at : t.at+size]
	t.at += size + 2
	if !t.begun || bounds == "" || strings.Trim(bounds, "0123456789,") != "" {
		return fmt.Errorf("the pattern has a bad interval %.20q", bounds)
	}
	if strings.HasPrefix(bounds, ",") {
		bounds = "0" + bounds
	}
	t.out.WriteString("{" + bounds + "}")
	return nil
}

// bracket translates a bracket expression, whose opening bracket has been read. In it a backslash
// means itself.
func (t *translator) bracket() error {
	t.out.WriteByte('[')
	if strings.HasPrefix(t.from[t.at:], "^") {
		t.at++
		t.out.WriteByte('^')
	}
	for first := true; t.at < len(t.from); first = false {
		c := t.from[t.at]
		t.at++
		rest := t.from[t.at:]
		switch {
		case c == ']' && !first:
			t.out.WriteByte(']')
			return nil
		case c == '[' && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "=")):
			return errBracket
		case c == '[' && strings.HasPrefix(rest, ":"):
			size := strings.Index(rest, ":]")
			if size < 0 {
				return errBracket
			}
			t.out.WriteString("[" + rest[:size+2])
			t.at += size + 2
		case strings.IndexByte(`\[]^&~`, c) >= 0:
			t.out.WriteString(`\` + string(rune(c)))
		default:
			t.out.WriteByte(c)
		}
	}
	return errUnfinished
}
