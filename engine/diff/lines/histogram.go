package lines

import (
	"context"
)

const (
	// rareMax is how often a line may occur in the old text for it to be something to go by.
	rareMax = 64
)

// histogram compares two texts by the lines that are rare in the old one: the longest run of equal lines around the rarest line is common,
// and what lies before and behind it is compared in the same way. Where only frequent lines are common, the classic way is taken. It is
// what git calls the histogram algorithm, and merges use it.
type histogram struct {
	ctx     context.Context // within one call
	a, b    *side
	lines   [2][]int32 // the class of each line
	records []record   // of each class, in the region at hand
	region  int32      // counts regions
	next    []int32    // the next line of a's of the same class in the region, plus one
	rarest  int32      // occurrences of the line that was gone by so far
	common  bool       // the texts have lines in common
}

// record is a class of lines in a region of a.
type record struct {
	region int32
	line   int32 // the first of the class
	count  int32
}

// compareHistogram marks the changed lines of two whole texts.
func compareHistogram(ctx context.Context, a, b *side) error {
	a.limit(0, 0)
	b.limit(0, 0)
	c := newClasses(a, b)
	h := &histogram{ctx: ctx, a: a, b: b, next: make([]int32, a.Count())}
	for i, s := range [2]*side{a, b} {
		h.lines[i] = make([]int32, s.Count())
		for n := range h.lines[i] {
			if n%pollLines == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			at := n
			if s == b {
				at = ^n
			}
			h.lines[i][n] = int32(c.number(s.Line(n), at))
		}
	}
	h.records = make([]record, len(c.all))
	return h.compare(0, a.Count(), 0, b.Count())
}

// run is a run of equal lines; its ends are included.
type run struct{ aStart, aEnd, bStart, bEnd int }

// compare marks the changed lines of a region.
func (h *histogram) compare(aStart, aEnd, bStart, bEnd int) error {
	for {
		if err := h.ctx.Err(); err != nil {
			return err
		}
		if aStart == aEnd || bStart == bEnd {
			h.markAll(aStart, aEnd, bStart, bEnd)
			return nil
		}
		best, found := h.longest(aStart, aEnd, bStart, bEnd)
		switch {
		case h.common && h.rarest > rareMax:
			return h.compareClassic(aStart, aEnd, bStart, bEnd)
		case !found:
			h.markAll(aStart, aEnd, bStart, bEnd)
			return nil
		}
		if err := h.compare(aStart, best.aStart, bStart, best.bStart); err != nil {
			return err
		}
		aStart, bStart = best.aEnd+1, best.bEnd+1
	}
}

func (h *histogram) markAll(aStart, aEnd, bStart, bEnd int) {
	for i := aStart; i < aEnd; i++ {
		h.a.mark(i)
	}
	for i := bStart; i < bEnd; i++ {
		h.b.mark(i)
	}
}

// longest returns the run to go by.
func (h *histogram) longest(aStart, aEnd, bStart, bEnd int) (best run, found bool) {
	h.region++
	for i := aEnd - 1; i >= aStart; i-- {
		r := &h.records[h.lines[0][i]]
		if r.region != h.region {
			*r = record{region: h.region, line: int32(i), count: 1}
			h.next[i] = 0
			continue
		}
		h.next[i] = r.line + 1
		r.line = int32(i)
		r.count++
	}
	h.rarest, h.common = rareMax+1, false
	length := 0 // of best, less one
	for b := bStart; b < bEnd; {
		after := b + 1
		r := &h.records[h.lines[1][b]]
		if r.region != h.region {
			b = after
			continue
		}
		h.common = true
		if r.count > h.rarest {
			b = after
			continue
		}
		for a := int(r.line); a >= 0; {
			at, rare := h.extend(a, b, [4]int{aStart, aEnd, bStart, bEnd}, r.count)
			after = max(after, at.bEnd+1)
			if length < at.aEnd-at.aStart || rare < h.rarest {
				best, found = at, true
				length, h.rarest = at.aEnd-at.aStart, rare
			}
			for a = int(h.next[a]) - 1; a >= 0 && a <= at.aEnd; {
				a = int(h.next[a]) - 1
			}
		}
		b = after
	}
	return best, found
}

// extend returns the run of equal lines around a pair of them, and how often its rarest line occurs.
func (h *histogram) extend(a, b int, region [4]int, count int32) (run, int32) {
	la, lb := h.lines[0], h.lines[1]
	at := run{a, a, b, b}
	for at.aStart > region[0] && at.bStart > region[2] && la[at.aStart-1] == lb[at.bStart-1] {
		at.aStart--
		at.bStart--
		count = min(count, h.records[la[at.aStart]].count)
	}
	for at.aEnd < region[1]-1 && at.bEnd < region[3]-1 && la[at.aEnd+1] == lb[at.bEnd+1] {
		at.aEnd++
		at.bEnd++
		count = min(count, h.records[la[at.aEnd]].count)
	}
	return at, count
}

// compareClassic compares a region as if it were all there is.
func (h *histogram) compareClassic(aStart, aEnd, bStart, bEnd int) error {
	a, b := newSide(h.a.part(aStart, aEnd)), newSide(h.b.part(bStart, bEnd))
	if err := compareClassic(h.ctx, a, b); err != nil {
		return err
	}
	copy(h.a.marks[aStart+1:aEnd+1], a.marks[1:])
	copy(h.b.marks[bStart+1:bEnd+1], b.marks[1:])
	return nil
}
