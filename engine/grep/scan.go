package grep

import (
	"bytes"
	"context"

	"packhorse/odb/fair"
)

// Line is a line of the result.
type Line struct {
	Number int64 // counted from 1
	Text   string
	Match  bool // it matches, or else it is context
}

// scanner searches one file, block by block, and keeps the lines of the result.
type scanner struct {
	options *Options
	buffer  []byte // of the file
	finder  finder
	skip    int64 // lines up to this one were returned before

	number    int64  // lines before the block
	matches   int    // found so far
	afterLeft int    // lines of context that the last match still asks for
	passed    int64  // the last line that was returned or skipped
	tail      []Line // the last lines of the block before, which may become context

	lines []Line
	size  int  // bytes of lines
	full  bool // more lines than fit the page
}

func (s *scanner) reset(o *Options, skip int64) {
	s.options, s.finder.pattern, s.skip = o, o.Pattern, skip
	s.number, s.matches, s.afterLeft, s.passed = 0, 0, 0, 0
	s.tail, s.lines, s.size, s.full = s.tail[:0], nil, 0, false
}

// place is the first line of a block of which nothing has been decided: where it begins, and its
// number.
type place struct {
	offset int
	number int64
}

// block goes through whole lines, of which the last one of a file may lack its newline. It reports
// whether the rest of the file is wanted.
func (s *scanner) block(ctx context.Context, text []byte) (bool, error) {
	s.finder.reset(text)
	at := place{number: s.number + 1}
	for from := 0; !s.full && !s.hasAll(); {
		start, end, ok, err := s.finder.line(ctx, from)
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		at = s.tellAfter(text, at, start)
		at = s.tellBefore(text, at, start)
		s.tell(at.number, text[start:end], true)
		s.matches++
		s.afterLeft = s.options.After
		from = end + 1
		at = place{min(from, len(text)), at.number + 1}
	}
	at = s.tellAfter(text, at, len(text))
	if s.full || s.hasAll() && s.afterLeft == 0 {
		return false, nil
	}
	s.keepTail(text, at)
	return true, fair.Pause(ctx)
}

// hasAll reports whether no further match of the file counts.
func (s *scanner) hasAll() bool { return s.options.MatchesMax > 0 && s.matches >= s.options.MatchesMax }

// tellAfter returns the context after the last match, up to the offset end.
func (s *scanner) tellAfter(text []byte, at place, end int) place {
	for ; s.afterLeft > 0 && at.offset < end; s.afterLeft-- {
		next := lineEnd(text, at.offset)
		s.tell(at.number, bytes.TrimSuffix(text[at.offset:next], newline), false)
		at = place{next, at.number + 1}
	}
	return at
}

// tellBefore returns the context before the match that begins at start. Lines before at have been
// handled.
func (s *scanner) tellBefore(text []byte, at place, start int) place {
	first, count := start, 0
	for count < s.options.Before && first > at.offset {
		first = bytes.LastIndexByte(text[at.offset:first-1], '\n') + 1 + at.offset
		count++
	}
	if first == 0 { // there may be more of it in the block before
		for i := max(len(s.tail)-(s.options.Before-count), 0); i < len(s.tail); i++ {
			if l := &s.tail[i]; l.Number > s.passed {
				s.tell(l.Number, []byte(l.Text), false)
			}
		}
	}
	at = place{first, at.number + int64(bytes.Count(text[at.offset:first], newline))}
	for at.offset < start {
		next := lineEnd(text, at.offset)
		s.tell(at.number, text[at.offset:next-1], false)
		at = place{next, at.number + 1}
	}
	return at
}

// keepTail keeps the last lines of the text from at on, and counts its lines.
func (s *scanner) keepTail(text []byte, at place) {
	lines := int64(bytes.Count(text[at.offset:], newline))
	s.number = at.number - 1 + lines
	if at.offset > 0 {
		s.tail = s.tail[:0] // these lines are behind a match
	}
	if s.options.Before == 0 {
		return
	}
	first, count := len(text), int64(0)
	for count < int64(s.options.Before) && first > at.offset {
		first = bytes.LastIndexByte(text[at.offset:first-1], '\n') + 1 + at.offset
		count++
	}
	for number := s.number - count + 1; first < len(text); number++ {
		next := lineEnd(text, first)
		s.tail = append(s.tail, Line{Number: number, Text: string(bytes.TrimSuffix(text[first:next], newline))})
		first = next
	}
	s.tail = s.tail[max(len(s.tail)-s.options.Before, 0):]
}

var newline = []byte{'\n'}

// lineEnd returns where the line after the one at offset begins.
func lineEnd(text []byte, offset int) int {
	if i := bytes.IndexByte(text[offset:], '\n'); i >= 0 {
		return offset + i + 1
	}
	return len(text)
}

// tell adds a line to the result, if it is new and there is room.
func (s *scanner) tell(number int64, text []byte, match bool) {
	s.passed = number
	if number <= s.skip || s.full {
		return
	}
	text = text[:min(len(text), LineBytesMax)]
	if len(s.lines) == s.options.LinesMax || s.size+len(text) > s.options.BytesMax && len(s.lines) > 0 {
		s.full = true
		return
	}
	s.size += len(text)
	s.lines = append(s.lines, Line{Number: number, Text: string(text), Match: match})
}
