package revision

import (
	"fmt"
	"math"
	"strings"

	"packhorse/pack/object"
)

// Bounds of an expression.
const (
	// TextMax is the largest size of an expression in bytes: 1 KiB for the name of a ref, and as much
	// for the steps from it.
	TextMax = 2 << 10
	// StepsMax is the largest number of steps.
	StepsMax = 256
)

// Expression is a base, perhaps as of a moment, and the steps that lead from it to a commit.
type Expression struct {
	base   string // "" before a moment: the default branch
	moment *Moment
	then   string // the moment as it was written, with its braces
	steps  []step
}

// step is one of `~`, `~N`, `^`, `^N`, `^{}` and `^{commit}`.
type step struct {
	kind  stepKind
	count int    // generations, or which parent; math.MaxInt for what no history has
	text  string // as it was written
}

type stepKind uint8

const (
	stepPeel     stepKind = iota // the commit itself
	stepAncestor                 // count first parents back
	stepParent                   // the parent of number count
)

// Parse takes an expression apart. It knows no repository. Errors: [ErrInvalid] for a construct
// that is not taken, and for an expression that is none.
func Parse(text string) (Expression, error) {
	switch {
	case text == "":
		return Expression{}, refused(text, "nothing is named")
	case len(text) > TextMax:
		return Expression{}, refused(text, fmt.Sprintf("it has more than %d bytes", TextMax))
	}
	end := baseEnd(text)
	e := Expression{base: text[:end]}
	rest := text[end:]
	switch {
	case strings.HasPrefix(rest, "@{"):
		if reason := e.parseMoment(rest); reason != "" {
			return Expression{}, refused(text, reason)
		}
		rest = rest[len(e.then):]
	case e.base == "":
		return e, refused(text, withoutBase(text))
	}
	for rest != "" {
		s, reason := parseStep(rest)
		if reason != "" {
			return Expression{}, refused(text, reason)
		}
		if len(e.steps) == StepsMax {
			return Expression{}, refused(text, fmt.Sprintf("it has more than %d steps", StepsMax))
		}
		e.steps = append(e.steps, s)
		rest = rest[len(s.text):]
	}
	return e, nil
}

// String returns the text that was parsed.
func (e *Expression) String() string { return e.prefix(len(e.steps)) }

// prefix is the expression up to a number of steps.
func (e *Expression) prefix(steps int) string {
	var text strings.Builder
	text.WriteString(e.base + e.then)
	for _, s := range e.steps[:steps] {
		text.WriteString(s.text)
	}
	return text.String()
}

// Base returns the name that the steps begin at; "" before a moment is the default branch.
func (e *Expression) Base() string { return e.base }

// Moment returns the moment of the base, nil for now.
func (e *Expression) Moment() *Moment { return e.moment }

// HasSteps reports whether steps follow the base.
func (e *Expression) HasSteps() bool { return len(e.steps) > 0 }

// baseEnd returns the offset of the first text that no name of a ref contains and that means
// something in gitrevisions(7).
func baseEnd(text string) int {
	for i := range len(text) {
		switch text[i] {
		case '~', '^', ':':
			return i
		case '.', '@':
			if next := text[i:]; strings.HasPrefix(next, "..") || strings.HasPrefix(next, "@{") {
				return i
			}
		}
	}
	return len(text)
}

// withoutBase says why an expression that begins with no name is refused.
func withoutBase(text string) string {
	switch {
	case strings.HasPrefix(text, ":/"):
		return "a search for a message (:/text) is not taken"
	case text[0] == ':':
		return "a path (:path) is not taken"
	case text[0] == '^':
		return "a range (^a) is not taken"
	case text[0] == '~':
		return "no name stands before ~"
	default:
		return reasonAgainst(text)
	}
}

// reasonAgainst says why what follows a base or a step is refused.
func reasonAgainst(rest string) string {
	switch {
	case strings.HasPrefix(rest, "..."):
		return "a range (a...b) is not taken"
	case strings.HasPrefix(rest, ".."):
		return "a range (a..b) is not taken"
	case rest[0] == ':':
		return "a path (rev:path) is not taken"
	case strings.HasPrefix(rest, "@{"):
		return "a moment (@{...}) is taken once, directly behind a name"
	}
	return fmt.Sprintf("%.40q is no step from a commit", rest)
}

// parseMoment takes the moment that rest begins with, or says why it is refused.
func (e *Expression) parseMoment(rest string) (reason string) {
	inside, _, closed := strings.Cut(rest[len("@{"):], "}")
	if !closed {
		return "@{ is not closed"
	}
	moment, err := ParseMoment(inside)
	switch {
	case err != nil:
		return reasonAgainstAt(inside)
	case len(e.base) == object.HexSize && IsHex(e.base):
		return "a commit is the same at every moment: @{...} is taken behind the name of a ref"
	}
	e.moment, e.then = &moment, rest[:len("@{}")+len(inside)]
	return ""
}

// reasonAgainstAt says why what stands in @{...} is no moment.
func reasonAgainstAt(inside string) string {
	word := strings.ToLower(inside)
	switch {
	case word == "u" || word == "upstream":
		return fmt.Sprintf("an upstream (@{%s}) is not taken", inside)
	case word == "push":
		return fmt.Sprintf("a push target (@{%s}) is not taken", inside)
	case strings.HasPrefix(word, "-"):
		return fmt.Sprintf("a branch of before (@{%.40s}) is not taken", inside)
	}
	return fmt.Sprintf("@{%.40s} is not taken: a moment is %s", inside, Moments)
}

// parseStep takes the first step of rest, or says why there is none.
func parseStep(rest string) (s step, reason string) {
	switch {
	case rest[0] == '~':
		s.kind = stepAncestor
	case rest[0] != '^':
		return s, reasonAgainst(rest)
	case len(rest) > 1 && strings.ContainsRune("@!-", rune(rest[1])):
		return s, fmt.Sprintf("several commits (%s) are not taken", rest[:2])
	case strings.HasPrefix(rest, "^{"):
		return parsePeel(rest)
	default:
		s.kind = stepParent
	}
	digits := len(rest) - 1 - len(strings.TrimLeft(rest[1:], "0123456789"))
	s.text = rest[:1+digits]
	if s.count = 1; digits > 0 {
		s.count = number(s.text[1:])
	}
	if s.kind == stepParent && s.count == 0 {
		s.kind = stepPeel
	}
	return s, ""
}

// parsePeel takes ^{} or ^{commit}.
func parsePeel(rest string) (s step, reason string) {
	if strings.HasPrefix(rest, "^{/") {
		return s, "a search for a message (^{/text}) is not taken"
	}
	kind, _, closed := strings.Cut(rest[len("^{"):], "}")
	switch {
	case !closed:
		return s, "^{ is not closed"
	case kind != "" && kind != "commit":
		return s, fmt.Sprintf("another object than a commit (^{%.40s}) is not taken", kind)
	}
	return step{kind: stepPeel, text: rest[:len("^{}")+len(kind)]}, ""
}

// number is the value of decimal digits, math.MaxInt if they say more than 31 bits hold: no history
// is that long.
func number(digits string) int {
	n := 0
	for i := range len(digits) {
		if n = 10*n + int(digits[i]-'0'); n > math.MaxInt32 {
			return math.MaxInt
		}
	}
	return n
}
