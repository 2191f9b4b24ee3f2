package blame

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"packhorse/engine/diff/lines"
	"packhorse/odb/fair"
)

// span is the lines from start up to end, end not included.
type span struct{ start, end int }

// parseRanges returns the lines that ranges select, in order and without overlaps. Each range
// begins to search behind the one before it.
func parseRanges(ctx context.Context, text lines.Text, ranges []string) ([]span, error) {
	count := text.Count()
	if len(ranges) == 0 && count > 0 {
		return []span{{0, count}}, nil
	}
	var spans []span
	anchor := 1
	for _, form := range ranges {
		p := rangeParser{ctx: ctx, text: text, form: form, rest: form}
		begin, end, err := p.parse(max(min(anchor, count+1), 1))
		if err != nil {
			return nil, err
		}
		if count == 0 && (begin > 0 || end > 0) || begin > count {
			return nil, p.fail("the file has only %d lines", count)
		}
		begin = max(begin, 1)
		if end < 1 || end > count {
			end = count
		}
		anchor = end + 1
		if begin <= end {
			spans = append(spans, span{begin - 1, end})
		}
	}
	slices.SortStableFunc(spans, func(x, y span) int { return cmp.Compare(x.start, y.start) })
	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && s.start <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, s.end)
			continue
		}
		merged = append(merged, s)
	}
	return merged, nil
}

// rangeParser reads one range: "<start>,<end>", either of which may be missing, or ":<name of a
// function>". Its line numbers count from 1; 0 means that nothing was said.
type rangeParser struct {
	ctx  context.Context // a parser is used within one call
	text lines.Text
	form string
	rest string
}

func (p *rangeParser) fail(format string, args ...any) error {
	return fmt.Errorf("%w: %.200q: %s", ErrRange, p.form, fmt.Sprintf(format, args...))
}

// parse returns the first and the last line. Patterns are searched from the line anchor on.
func (p *rangeParser) parse(anchor int) (begin, end int, err error) {
	if strings.HasPrefix(p.rest, ":") || strings.HasPrefix(p.rest, "^:") {
		return p.function(anchor)
	}
	if begin, err = p.start(anchor); err != nil {
		return 0, 0, err
	}
	if strings.HasPrefix(p.rest, ",") {
		p.rest = p.rest[1:]
		if end, err = p.end(begin + 1); err != nil {
			return 0, 0, err
		}
	}
	if p.rest != "" {
		return 0, 0, p.fail("unexpected %.100q", p.rest)
	}
	if begin > 0 && end > 0 && end < begin {
		begin, end = end, begin
	}
	return begin, end, nil
}

// start reads a line number, or a pattern that is searched from the line anchor on, behind ^ from
// the first one.
func (p *rangeParser) start(anchor int) (int, error) {
	if n, ok, err := p.number(); ok || err != nil {
		return n, err
	}
	if strings.HasPrefix(p.rest, "^") {
		p.rest, anchor = p.rest[1:], 1
	}
	return p.pattern(anchor)
}

// end reads the same forms as start, or the number of lines behind (+) or before (-) the start.
// After is the line behind the start.
func (p *rangeParser) end(after int) (int, error) {
	if p.rest == "" || p.rest[0] != '+' && p.rest[0] != '-' {
		if n, ok, err := p.number(); ok || err != nil {
			return n, err
		}
		return p.pattern(after)
	}
	sign := p.rest[0]
	unsigned := rangeParser{form: p.form, rest: p.rest[1:]}
	n, ok, err := unsigned.integer()
	switch {
	case err != nil || !ok:
		return 0, err
	case n == 0:
		return 0, p.fail("an empty range")
	}
	p.rest = unsigned.rest
	if sign == '-' {
		n = -n
	}
	if n > 0 {
		return after + n - 2, nil
	}
	return max(after+n, 1), nil
}

// number reads the number of a line.
func (p *rangeParser) number() (n int, ok bool, err error) {
	n, ok, err = p.integer()
	if ok && err == nil && n <= 0 {
		return 0, true, p.fail("no line has the number %d", n)
	}
	return n, ok, err
}

// integer reads a number as strtol does: with white space and a sign before it.
func (p *rangeParser) integer() (n int, ok bool, err error) {
	digits := strings.TrimLeft(p.rest, " \t\n\v\f\r")
	size := 0
	if size < len(digits) && (digits[size] == '+' || digits[size] == '-') {
		size++
	}
	signed := size
	for size < len(digits) && '0' <= digits[size] && digits[size] <= '9' {
		size++
	}
	if size == signed {
		return 0, false, nil
	}
	p.rest = digits[size:]
	n, err = strconv.Atoi(digits[:size])
	if err != nil || n > lines.SizeMax || n < -lines.SizeMax {
		return 0, true, p.fail("a number that is too large")
	}
	return n, true, nil
}

// pattern reads a regular expression between slashes and returns the first line from the line
// number from on that it matches; 0 if there is no expression.
func (p *rangeParser) pattern(from int) (int, error) {
	if !strings.HasPrefix(p.rest, "/") {
		return 0, nil
	}
	size := 1
	for size < len(p.rest) && p.rest[size] != '/' {
		if p.rest[size] == '\\' {
			size++
		}
		size++
	}
	if size >= len(p.rest) {
		return 0, nil
	}
	expression, err := p.compile(p.rest[1:size])
	if err != nil {
		return 0, err
	}
	p.rest = p.rest[size+1:]
	return p.find(expression, from, func([]byte) bool { return true })
}

func (p *rangeParser) compile(pattern string) (*regexp.Regexp, error) {
	translated, err := translate(pattern)
	if err != nil {
		return nil, p.fail("%v", err)
	}
	expression, err := regexp.Compile(translated)
	if err != nil {
		return nil, p.fail("the pattern is not valid: %v", err)
	}
	return expression, nil
}

// pollLines is the number of lines between two checks of the context.
const pollLines = 1 << 12

// find returns the number of the first line from one on that fits and that an expression matches.
func (p *rangeParser) find(expression *regexp.Regexp, from int, fits func(line []byte) bool) (int, error) {
	for i := from - 1; i < p.text.Count(); i++ {
		if i%pollLines == 0 {
			if err := fair.Pause(p.ctx); err != nil {
				return 0, err
			}
		}
		if line := p.text.Line(i); fits(line) && expression.Match(bytes.TrimSuffix(line, []byte("\n"))) {
			return i + 1, nil
		}
	}
	return 0, p.fail("no line from %d on matches", from)
}

// function reads the name of a function, a regular expression, and returns its lines: from the
// first line that matches and begins a function to the one before the next that does.
func (p *rangeParser) function(anchor int) (begin, end int, err error) {
	if strings.HasPrefix(p.rest, "^") {
		p.rest, anchor = p.rest[1:], 1
	}
	size := 1
	for size < len(p.rest) && p.rest[size] != ':' {
		if p.rest[size] == '\\' && size+1 < len(p.rest) {
			size++
		}
		size++
	}
	name := p.rest[1:size]
	if name == "" || size != len(p.rest) {
		return 0, 0, p.fail("a function has a name and nothing behind it")
	}
	expression, err := p.compile(name)
	if err != nil {
		return 0, 0, err
	}
	if begin, err = p.find(expression, anchor, lines.BeginsFunction); err != nil {
		return 0, 0, err
	}
	for end = begin; end < p.text.Count() && !lines.BeginsFunction(p.text.Line(end)); end++ {
		if end%pollLines == 0 {
			if err := fair.Pause(p.ctx); err != nil {
				return 0, 0, err
			}
		}
	}
	return begin, end, nil
}
