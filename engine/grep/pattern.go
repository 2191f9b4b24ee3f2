package grep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"packhorse/odb/fair"
)

// ErrPattern says that a pattern is not valid RE2, or too large.
var ErrPattern = errors.New("grep: invalid pattern")

// Bounds of a pattern. The time for a line is its length times the instructions, and a line is
// matched in one go up to patientBytes.
const (
	patternBytesMax = 4096
	instructionsMax = 5000
	patientBytes    = 64 << 10
)

// Pattern finds lines. It may be used concurrently.
type Pattern struct {
	expr *regexp.Regexp
	// program and classes make automata, which wait between two texts. costly says that the program
	// has too many states for that.
	program  *syntax.Prog
	classes  *alphabet
	automata sync.Pool
	costly   atomic.Bool
	// literals are strings of which every match has one, none if unknown. With fold they are in
	// lower case.
	literals [][]byte
	fold     bool
	// literal says that the pattern is its one literal.
	literal bool
	// trigrams are lists of hashes. A file with a match has all trigrams of one of them. nil if
	// unknown.
	trigrams [][]uint32
}

// Compile compiles a pattern in the syntax of RE2. It matches lines without their ends, so that ^
// and $ are those of the line. Errors: [ErrPattern].
func Compile(pattern string, ignoreCase bool) (*Pattern, error) {
	if len(pattern) > patternBytesMax {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrPattern, patternBytesMax)
	}
	flags, source := syntax.Perl, pattern
	if ignoreCase {
		flags, source = flags|syntax.FoldCase, "(?i)"+pattern
	}
	tree, err := syntax.Parse(pattern, flags)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPattern, err)
	}
	tree = tree.Simplify()
	program, err := syntax.Compile(tree)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPattern, err)
	}
	if len(program.Inst) > instructionsMax {
		return nil, fmt.Errorf("%w: it takes more than %d instructions", ErrPattern, instructionsMax)
	}
	p := &Pattern{program: program, classes: alphabetOf(program)}
	if p.expr, err = regexp.Compile(source); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPattern, err)
	}
	set := required(tree)
	for _, l := range set {
		p.fold = p.fold || l.fold
	}
	for _, l := range set {
		text := []byte(l.text)
		if p.fold {
			text = appendLower(nil, text)
		}
		p.literals = append(p.literals, text)
	}
	p.trigrams = trigramsOf(set)
	p.literal = len(set) == 1 && set[0].whole && tree.Op == syntax.OpLiteral && !strings.Contains(set[0].text, "\n")
	return p, nil
}

// required is a literal that a match must contain.
type requiredLiteral struct {
	text  string
	fold  bool
	whole bool // it is all of the literal in the pattern
	// stretch is the longest part of the literal in the pattern that a match has as it is, or, with
	// fold, with letters in another case, or a Kelvin or a long s for a letter.
	stretch string
}

// alternativesMax bounds the literals that a line is searched for.
const alternativesMax = 8

// required returns literals of which every match of re contains one, the longest there are, or none
// if there is no such set.
func required(re *syntax.Regexp) []requiredLiteral {
	switch re.Op {
	case syntax.OpLiteral:
		return literalOf(re)
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []requiredLiteral
		for _, sub := range re.Sub {
			if set := required(sub); shortest(set) > shortest(best) {
				best = set
			}
		}
		return best
	case syntax.OpAlternate:
		var all []requiredLiteral
		for _, sub := range re.Sub {
			set := required(sub)
			if set == nil || len(all)+len(set) > alternativesMax {
				return nil
			}
			all = append(all, set...)
		}
		return all
	default: // it may match without any text, or any of many
	}
	return nil
}

// shortest returns the length of the shortest literal of a set.
func shortest(set []requiredLiteral) int {
	if len(set) == 0 {
		return 0
	}
	size := len(set[0].text)
	for _, l := range set[1:] {
		size = min(size, len(l.text))
	}
	return size
}

// literalOf returns the longest stretch of a literal that can be searched byte by byte. The
// replacement character stands for any invalid byte. Without regard to case it is a stretch of
// ASCII without k and s, which are small letters of the Kelvin and the long s too.
func literalOf(re *syntax.Regexp) []requiredLiteral {
	fold := re.Flags&syntax.FoldCase != 0
	text := string(re.Rune)
	stretch := longest(text, func(r rune) bool { return r == utf8.RuneError || fold && r >= utf8.RuneSelf })
	best := stretch
	if fold {
		best = longest(text, func(r rune) bool { return r >= utf8.RuneSelf || strings.ContainsRune("kKsS", r) })
	}
	if best == "" {
		return nil
	}
	return []requiredLiteral{{text: best, fold: fold, whole: best == text, stretch: stretch}}
}

// longest returns the longest part of text without runes of which is true.
func longest(text string, is func(r rune) bool) (best string) {
	for part := range strings.FieldsFuncSeq(text, is) {
		if len(part) > len(best) {
			best = part
		}
	}
	return best
}

// appendLower appends text with ASCII letters in lower case.
func appendLower(dst, text []byte) []byte {
	start := len(dst)
	dst = append(dst, text...)
	for i, c := range dst[start:] {
		if c-'A' < 26 {
			dst[start+i] = c + ('a' - 'A')
		}
	}
	return dst
}

// finder looks for the lines of one text that match.
type finder struct {
	pattern *Pattern
	text    []byte
	hay     []byte // text, or the same in lower case
	lower   []byte // what hay lies in then, kept for the next text
	next    []int  // of each literal: where it comes next, len(hay) for nowhere; stale when it has been passed
}

func (f *finder) reset(text []byte) {
	f.text, f.hay = text, text
	if f.pattern.fold {
		f.lower = appendLower(f.lower[:0], text)
		f.hay = f.lower
	}
	f.next = f.next[:0]
	for range f.pattern.literals {
		f.next = append(f.next, -1)
	}
}

// line returns where the first line that matches begins and ends, of those that begin at from, a
// beginning of a line, or later.
func (f *finder) line(ctx context.Context, from int) (start, end int, ok bool, err error) {
	if len(f.next) == 0 && !f.pattern.costly.Load() {
		start, end, ok, err = f.pattern.find(ctx, f.text, from)
		if !errors.Is(err, errManyStates) {
			return start, end, ok, err
		}
	}
	for from < len(f.text) {
		at := f.candidate(from)
		if at == len(f.text) {
			break
		}
		start = bytes.LastIndexByte(f.text[from:at], '\n') + 1 + from
		end = len(f.text)
		if i := bytes.IndexByte(f.text[at:], '\n'); i >= 0 {
			end = at + i
		}
		if f.pattern.literal {
			return start, end, true, nil
		}
		ok, err := f.pattern.match(ctx, f.text[start:end])
		if ok || err != nil {
			return start, end, ok, err
		}
		from = end + 1
	}
	return 0, 0, false, nil
}

// candidate returns a place in the first line that may match, or the length of the text.
func (f *finder) candidate(from int) int {
	if len(f.next) == 0 {
		return from
	}
	first := len(f.hay)
	for i, at := range f.next {
		if at < from {
			at = bytes.Index(f.hay[from:], f.pattern.literals[i])
			if at < 0 {
				at = len(f.hay)
			} else {
				at += from
			}
			f.next[i] = at
		}
		first = min(first, at)
	}
	return first
}

// find returns where the first line that matches begins and ends, of those that begin at from, a
// beginning of a line, or later. Errors: errManyStates; those of ctx.
func (p *Pattern) find(ctx context.Context, text []byte, from int) (start, end int, ok bool, err error) {
	a, _ := p.automata.Get().(*automaton)
	if a == nil {
		if a, err = newAutomaton(p.program, p.classes); err != nil {
			p.costly.Store(true)
			return 0, 0, false, err
		}
	}
	start, end, ok, err = a.find(ctx, text, from)
	if errors.Is(err, errManyStates) {
		p.costly.Store(true)
	} else {
		p.automata.Put(a)
	}
	return start, end, ok, err
}

// match holds a line against the pattern.
func (p *Pattern) match(ctx context.Context, line []byte) (bool, error) {
	if len(line) > 0 && !p.costly.Load() {
		_, _, ok, err := p.find(ctx, line, 0)
		if !errors.Is(err, errManyStates) {
			return ok, err
		}
	}
	if len(line) <= patientBytes {
		return p.expr.Match(line), nil
	}
	ok := p.expr.MatchReader(&patientReader{ctx: ctx, rest: line})
	return ok, fair.Pause(ctx)
}

// patientReader reads a long line, and ends it when the request is cancelled: a match cannot be
// interrupted otherwise.
type patientReader struct {
	ctx   context.Context
	rest  []byte
	count int
}

// ReadRune implements io.RuneReader.
func (r *patientReader) ReadRune() (rune, int, error) {
	if r.count++; len(r.rest) == 0 || r.count%4096 == 0 && fair.Pause(r.ctx) != nil {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRune(r.rest)
	r.rest = r.rest[size:]
	return c, size, nil
}
