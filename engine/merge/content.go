package merge

import (
	"bytes"
	"cmp"
	"context"

	"packhorse/engine/diff/lines"
	"packhorse/pack/invariants"
)

// ContentOptions are the options of showing conflicts. The zero value has no labels.
type ContentOptions struct {
	Ours, Theirs string // labels of the two sides behind the markers; "" for none
	MarkerSize   int    // length of a marker in characters; 0 means [MarkerSizeDefault]
}

// MarkerSizeDefault is the size of conflict markers in files. Merges of merge bases use longer
// ones.
const MarkerSizeDefault = 7

// Content merges two contents with a common base, line by line, as git merge does: by the histogram
// diff, and with conflicts reduced to the lines that differ, unless three lines or fewer would
// separate two of them.
//
// It returns the merged content, in memory of its own or of one of the arguments, and the number of
// conflicts, which it shows between markers. The caller makes sure that the contents are text. Each
// has at most [lines.SizeMax] bytes.
//
// Errors: that of ctx.
func Content(
	ctx context.Context, base *lines.Base, ours, theirs []byte, o ContentOptions,
) (merged []byte, conflicts int, err error) {
	o.MarkerSize = cmp.Or(o.MarkerSize, MarkerSizeDefault)
	m := contentMerge{
		ContentOptions: o,
		base:           base.Text(), ours: lines.Split(ours), theirs: lines.Split(theirs),
	}
	ourChanges, err := base.Diff(ctx, m.ours, contentDiff)
	if err != nil {
		return nil, 0, err
	}
	theirChanges, err := base.Diff(ctx, m.theirs, contentDiff)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case len(ourChanges) == 0:
		return theirs, 0, nil
	case len(theirChanges) == 0:
		return ours, 0, nil
	}
	m.align(ourChanges, theirChanges)
	if err := m.refine(ctx); err != nil {
		return nil, 0, err
	}
	m.join()
	if invariants.Enabled {
		m.check()
	}
	merged, conflicts = m.write()
	return merged, conflicts, nil
}

// contentDiff is how merges compare contents.
var contentDiff = lines.Options{Histogram: true, NoIndent: true}

// contentMerge merges one content.
type contentMerge struct {
	ContentOptions
	base, ours, theirs lines.Text
	parts              []part
}

// part is a place where a side differs from the base: the lines of ours and of theirs at that
// place.
type part struct {
	taken        taken
	ours, theirs span
}

// span is count lines from an index on.
type span struct{ start, count int }

func (s span) end() int { return s.start + s.count }

// taken says which side a merge takes.
type taken int

const (
	neither taken = iota // a conflict
	oursOnly
	theirsOnly
)

// align puts the changes of both sides side by side. Those that touch are a conflict, unless they
// are the same.
func (m *contentMerge) align(ours, theirs []lines.Change) {
	// Lines between changes correspond to the base: these are their distances on both sides.
	oursShift, theirsShift := 0, 0
	for len(ours) > 0 || len(theirs) > 0 {
		switch {
		case len(theirs) == 0 || len(ours) > 0 && oldEnd(ours[0]) < theirs[0].OldStart:
			x := ours[0]
			m.add(part{oursOnly, span{x.NewStart, x.NewCount}, span{x.OldStart + theirsShift, x.OldCount}})
			ours, oursShift = ours[1:], newEnd(x)-oldEnd(x)
			continue
		case len(ours) == 0 || oldEnd(theirs[0]) < ours[0].OldStart:
			y := theirs[0]
			m.add(part{theirsOnly, span{y.OldStart + oursShift, y.OldCount}, span{y.NewStart, y.NewCount}})
			theirs, theirsShift = theirs[1:], newEnd(y)-oldEnd(y)
			continue
		}
		x, y := ours[0], theirs[0]
		if !m.same(x, y) {
			start, end := min(x.OldStart, y.OldStart), max(oldEnd(x), oldEnd(y))
			m.add(part{neither, widened(x, start, end), widened(y, start, end)})
		}
		if oldEnd(x) >= oldEnd(y) {
			theirs, theirsShift = theirs[1:], newEnd(y)-oldEnd(y)
		}
		if oldEnd(y) >= oldEnd(x) {
			ours, oursShift = ours[1:], newEnd(x)-oldEnd(x)
		}
	}
}

func oldEnd(c lines.Change) int { return c.OldStart + c.OldCount }
func newEnd(c lines.Change) int { return c.NewStart + c.NewCount }

// widened returns the new lines of a change and of the common lines around it, for the lines of the
// base from start to end.
func widened(c lines.Change, start, end int) span {
	return span{c.NewStart - (c.OldStart - start), c.NewCount + c.OldStart - start + end - oldEnd(c)}
}

// same says whether both sides made the same change.
func (m *contentMerge) same(x, y lines.Change) bool {
	return x.OldStart == y.OldStart && x.OldCount == y.OldCount && x.NewCount == y.NewCount &&
		bytes.Equal(m.ours.Range(x.NewStart, x.NewCount), m.theirs.Range(y.NewStart, y.NewCount))
}

// add appends a part, or makes one of it and the last one where they touch.
func (m *contentMerge) add(p part) {
	if n := len(m.parts); n > 0 {
		last := &m.parts[n-1]
		if p.ours.start <= last.ours.end() || p.theirs.start <= last.theirs.end() {
			if p.taken != last.taken {
				last.taken = neither
			}
			last.ours.count = p.ours.end() - last.ours.start
			last.theirs.count = p.theirs.end() - last.theirs.start
			return
		}
	}
	m.parts = append(m.parts, p)
}

// refine leaves of each conflict only the lines that the sides do not have in common.
func (m *contentMerge) refine(ctx context.Context) error {
	var refined []part
	for _, p := range m.parts {
		if p.taken != neither || p.ours.count == 0 || p.theirs.count == 0 {
			refined = append(refined, p)
			continue
		}
		changes, err := lines.Changes(ctx, m.ours.Range(p.ours.start, p.ours.count),
			m.theirs.Range(p.theirs.start, p.theirs.count), contentDiff)
		if err != nil {
			return err
		}
		if len(changes) == 0 { // both came to the same by other ways
			refined = append(refined, part{oursOnly, p.ours, p.theirs})
		}
		for _, c := range changes {
			refined = append(refined,
				part{neither, span{p.ours.start + c.OldStart, c.OldCount}, span{p.theirs.start + c.NewStart, c.NewCount}})
		}
	}
	m.parts = refined
	return nil
}

// check asserts that the parts follow each other on both sides, within them.
func (m *contentMerge) check() {
	oursAt, theirsAt := 0, 0
	for i, p := range m.parts {
		invariants.Check(p.ours.start >= oursAt && p.ours.count >= 0 && p.theirs.start >= theirsAt && p.theirs.count >= 0,
			"merge: part %d, %+v, stands behind %d and %d", i, p, oursAt, theirsAt)
		oursAt, theirsAt = p.ours.end(), p.theirs.end()
	}
	invariants.Check(oursAt <= m.ours.Count() && theirsAt <= m.theirs.Count(),
		"merge: parts reach to %d and %d", oursAt, theirsAt)
}

// betweenMax is the largest number of common lines between two conflicts that are joined.
const betweenMax = 3

// join makes one conflict of two with few lines between them.
func (m *contentMerge) join() {
	joined := m.parts[:0]
	for _, p := range m.parts {
		if n := len(joined); n > 0 && p.taken == neither && joined[n-1].taken == neither {
			if last := &joined[n-1]; p.ours.start-last.ours.end() <= betweenMax {
				last.ours.count = p.ours.end() - last.ours.start
				last.theirs.count = p.theirs.end() - last.theirs.start
				continue
			}
		}
		joined = append(joined, p)
	}
	m.parts = joined
}
