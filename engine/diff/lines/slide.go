package lines

import (
	"bytes"
	"context"

	"packhorse/odb/fair"
)

// slider moves the groups of changed lines of one side: a group between equal lines may equally be
// one line further up or down.
type slider struct {
	own, other *side
	indent     bool
	polls      int
}

// group is a run of changed lines, possibly empty, between two unchanged ones. A group of one side
// corresponds to the group of the other side that follows the same unchanged line.
type group struct{ start, end int }

// firstGroup returns the group before the first unchanged line.
func (s *side) firstGroup() group {
	g := group{}
	for s.changed(g.end) {
		g.end++
	}
	return g
}

// next moves g to the group behind the next unchanged line, if there is one.
func (s *side) next(g *group) bool {
	if g.end == s.Count() {
		return false
	}
	g.start, g.end = g.end+1, g.end+1
	for s.changed(g.end) {
		g.end++
	}
	return true
}

// previous moves g to the group before the unchanged line that it follows. There is one.
func (s *side) previous(g *group) {
	g.start, g.end = g.start-1, g.start-1
	for s.changed(g.start - 1) {
		g.start--
	}
}

// unchanged counts the lines from an index on up to the next changed one.
func (s *side) unchanged(index int) int {
	n := bytes.IndexByte(s.marks[index+1:s.Count()+1], 1)
	if n < 0 {
		n = s.Count() - index
	}
	return n
}

// run slides all groups of s.own, each to the last place where it meets a group of the other side,
// or else to where indentation suggests it, or else down.
func (s *slider) run(ctx context.Context) error {
	g, other := s.own.firstGroup(), s.other.firstGroup()
	for {
		if g.end > g.start {
			if err := s.slide(ctx, &g, &other); err != nil {
				return err
			}
		} else if n := min(s.own.unchanged(g.end), s.other.unchanged(other.end)); n > 1 {
			// Between unchanged lines of both sides there are only empty groups.
			g, other = group{g.end + n - 1, g.end + n - 1}, group{other.end + n - 1, other.end + n - 1}
		}
		if !s.own.next(&g) {
			return nil
		}
		s.other.next(&other)
	}
}

// slide puts g in its place; other follows it.
func (s *slider) slide(ctx context.Context, g, other *group) error {
	var size, top int
	var meets bool // some place of g meets a group of the other side
	for size != g.end-g.start {
		size = g.end - g.start
		for s.up(g) {
			s.other.previous(other)
			if err := s.poll(ctx); err != nil {
				return err
			}
		}
		top = g.end
		meets = other.end > other.start
		for s.down(g) {
			s.other.next(other)
			meets = meets || other.end > other.start
			if err := s.poll(ctx); err != nil {
				return err
			}
		}
	}
	switch {
	case g.end == top: // it cannot move
	case meets:
		for other.end == other.start {
			s.up(g)
			s.other.previous(other)
		}
	case s.indent:
		for end := s.own.bestEnd(*g, top); g.end > end; {
			s.up(g)
			s.other.previous(other)
		}
	}
	return nil
}

// poll looks now and then whether the work is still wanted.
func (s *slider) poll(ctx context.Context) error {
	s.polls++
	if s.polls%pollLines == 0 {
		return fair.Pause(ctx)
	}
	return nil
}

// up moves g one line up, if the line before it equals its last one. It takes in the group that it
// bumps into.
func (s *slider) up(g *group) bool {
	t := s.own
	if g.start == 0 || !bytes.Equal(t.Line(g.start-1), t.Line(g.end-1)) {
		return false
	}
	g.start--
	g.end--
	t.mark(g.start)
	t.unmark(g.end)
	for t.changed(g.start - 1) {
		g.start--
	}
	return true
}

// down moves g one line down, if the line behind it equals its first one. It takes in the group
// that it bumps into.
func (s *slider) down(g *group) bool {
	t := s.own
	if g.end == t.Count() || !bytes.Equal(t.Line(g.start), t.Line(g.end)) {
		return false
	}
	t.unmark(g.start)
	t.mark(g.end)
	g.start++
	g.end++
	for t.changed(g.end) {
		g.end++
	}
	return true
}
