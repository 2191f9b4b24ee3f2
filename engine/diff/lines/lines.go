// Package lines compares contents by lines, with git's result.
//
// [Diff] finds the changes, [WriteHunks] shows them as unified hunks. The algorithm is git's
// default: E. Myers, "An O(ND) Difference Algorithm and Its Variations" (1986), in linear space,
// after lines that cannot or hardly match have been set aside, with limits on the cost where the
// contents differ much; then the groups of changed lines slide to the places that people prefer.
// Which of many equally good answers comes out depends on every one of these steps, so each does
// exactly what git 2.39 does. The histogram diff, which merges use, is there as well.
//
// The package is pure: no files, no goroutines; its functions may be called concurrently. Memory
// grows with the number of lines.
package lines

import (
	"bytes"
	"context"
	"slices"

	"packhorse/pack/invariants"
)

// Change is a run of lines that were replaced: OldCount lines from index OldStart on by NewCount
// lines from NewStart on. Indexes count from 0; one count may be 0.
type Change struct{ OldStart, OldCount, NewStart, NewCount int }

// Options say how contents are compared. The zero value is the default of git diff.
type Options struct {
	// NoIndent leaves out the heuristic that moves groups of changed lines to places suggested by
	// indentation. Merges set it.
	NoIndent bool
	// NoContext is for callers that show no lines around changes: a common end is skipped, and
	// groups of changed lines do not slide into it. Blame sets it.
	NoContext bool
	// Histogram takes git's histogram diff in place of Myers' algorithm. Merges do.
	Histogram bool
}

// Changes is [Diff] of two contents.
func Changes(ctx context.Context, before, after []byte, o Options) ([]Change, error) {
	return Diff(ctx, Split(before), Split(after), o)
}

// Diff returns the changes that turn before into after, in order, with at least one common line
// between two changes.
//
// Errors: that of ctx.
func Diff(ctx context.Context, before, after Text, o Options) ([]Change, error) {
	if o.NoContext {
		before, after = cutTails(before, after)
	}
	if o.Histogram {
		return NewBase(before).Diff(ctx, after, o)
	}
	a, b := newSide(before), newSide(after)
	if err := compareByMyers(ctx, a, b); err != nil {
		return nil, err
	}
	return changesOf(ctx, a, b, o)
}

// changesOf returns the changes between two sides whose changed lines are marked.
func changesOf(ctx context.Context, a, b *side, o Options) ([]Change, error) {
	for _, s := range [...]slider{{own: a, other: b, indent: !o.NoIndent}, {own: b, other: a, indent: !o.NoIndent}} {
		if err := s.run(ctx); err != nil {
			return nil, err
		}
	}
	changes := script(a, b)
	if invariants.Enabled {
		check(a.Text, b.Text, changes)
	}
	return changes, nil
}

// check asserts that changes turn before into after: the lines between them are equal on both
// sides.
func check(before, after Text, changes []Change) {
	i, j := 0, 0
	for n, c := range append(slices.Clip(changes), Change{OldStart: before.Count(), NewStart: after.Count()}) {
		common := c.OldStart - i
		invariants.Check(common == c.NewStart-j && common >= 0 && (common > 0 || n == 0 || n == len(changes)),
			"lines: change %d, %+v, stands behind %d and %d", n, c, i, j)
		invariants.Check(bytes.Equal(before.Range(i, common), after.Range(j, common)),
			"lines: what precedes change %d is not the same", n)
		i, j = c.OldStart+c.OldCount, c.NewStart+c.NewCount
	}
}

// compareByMyers marks the changed lines.
func compareByMyers(ctx context.Context, a, b *side) error {
	start := commonStart(a.Text, b.Text)
	end := commonEnd(a.Text, b.Text, min(a.Count(), b.Count())-start)
	a.limit(start, end)
	b.limit(start, end)
	if a.start == a.end || b.start == b.end {
		a.markAll()
		b.markAll()
		return nil
	}
	if err := setAside(ctx, a, b); err != nil {
		return err
	}
	return newMyers(ctx, a, b).compare(box{aEnd: len(a.kept), bEnd: len(b.kept)}, false)
}

// side is one of the two texts of a comparison.
type side struct {
	Text
	marks      []byte  // 1 for a changed line; begins one before the first line, ends one behind the last
	start, end int     // the lines between the common ends
	kept       []int32 // indexes of the lines that are compared
	classes    []int32 // of the same lines: equal for equal lines
}

func newSide(t Text) *side { return &side{Text: t, marks: make([]byte, t.Count()+2)} }

func (s *side) limit(start, end int) { s.start, s.end = start, s.Count()-end }

func (s *side) changed(index int) bool { return s.marks[index+1] != 0 }

func (s *side) mark(index int) { s.marks[index+1] = 1 }

func (s *side) unmark(index int) { s.marks[index+1] = 0 }

func (s *side) markAll() {
	for i := s.start; i < s.end; i++ {
		s.mark(i)
	}
}

// script collects the changes. Unmarked lines correspond to each other in their order.
func script(a, b *side) []Change {
	var all []Change
	i, j := 0, 0
	for {
		n := min(a.unchanged(i), b.unchanged(j))
		i, j = i+n, j+n
		c := Change{OldStart: i, NewStart: j}
		for a.changed(i) {
			i++
		}
		for b.changed(j) {
			j++
		}
		c.OldCount, c.NewCount = i-c.OldStart, j-c.NewStart
		if c.OldCount == 0 && c.NewCount == 0 {
			return all
		}
		all = append(all, c)
	}
}
