package lines

import (
	"context"

	"packhorse/odb/fair"
)

// occurrencesMax is the number of occurrences from which on a line is too common to start a common
// run.
const occurrencesMax = 64

// histogram compares two sides as git's histogram diff: it searches the longest run of common lines
// around the line that occurs least often in a, and continues before and behind it. Where only very
// common lines are shared, Myers' algorithm decides.
type histogram struct {
	ctx                context.Context // a comparison is within one call
	a, b               *side
	classesA, classesB []int32

	// Positions in a of the lines of the searched region. Classes that it does not have count 0.
	first  []int32 // of a class: the first line
	counts []int32 // of a class: number of lines
	next   []int32 // of a line: the next equal one, or -1
}

// compareByHistogram marks the changed lines.
func compareByHistogram(ctx context.Context, base *Base, a, b *side) error {
	a.limit(0, 0)
	b.limit(0, 0)
	classesB, count, err := base.classify(ctx, b)
	if err != nil {
		return err
	}
	h := &histogram{
		ctx: ctx, a: a, b: b, classesA: base.numbers, classesB: classesB,
		first: make([]int32, count), counts: make([]int32, count), next: make([]int32, a.Count()),
	}
	return h.compare(box{aEnd: a.Count(), bEnd: b.Count()})
}

// compare marks what differs in a box.
func (h *histogram) compare(x box) error {
	for {
		if x.aStart == x.aEnd || x.bStart == x.bEnd {
			h.markAll(x)
			return nil
		}
		common, tooCommon, err := h.search(x)
		switch {
		case err != nil:
			return err
		case tooCommon:
			return h.compareByMyers(x)
		case common == box{}:
			h.markAll(x)
			return nil
		}
		head := box{aStart: x.aStart, aEnd: common.aStart, bStart: x.bStart, bEnd: common.bStart}
		tail := box{aStart: common.aEnd, aEnd: x.aEnd, bStart: common.bEnd, bEnd: x.bEnd}
		if head.size() > tail.size() { // the larger one is handled here, so that the stack stays low
			head, tail = tail, head
		}
		if err := h.compare(head); err != nil {
			return err
		}
		x = tail
	}
}

func (h *histogram) markAll(x box) {
	for i := x.aStart; i < x.aEnd; i++ {
		h.a.mark(i)
	}
	for i := x.bStart; i < x.bEnd; i++ {
		h.b.mark(i)
	}
}

// compareByMyers compares a box as if it were the whole of both contents.
func (h *histogram) compareByMyers(x box) error {
	a, b := newSide(h.a.part(x.aStart, x.aEnd)), newSide(h.b.part(x.bStart, x.bEnd))
	if err := compareByMyers(h.ctx, a, b); err != nil {
		return err
	}
	copy(h.a.marks[x.aStart+1:], a.marks[1:a.Count()+1])
	copy(h.b.marks[x.bStart+1:], b.marks[1:b.Count()+1])
	return nil
}

// search finds the best run of common lines in a box, an empty one if there is none; tooCommon says
// that all common lines are.
func (h *histogram) search(x box) (best box, tooCommon bool, err error) {
	for i := x.aEnd - 1; i >= x.aStart; i-- {
		class := h.classesA[i]
		h.next[i] = -1
		if h.counts[class] > 0 {
			h.next[i] = h.first[class]
		}
		h.first[class] = int32(i)
		h.counts[class]++
	}
	run := runSearch{histogram: h, box: x, rarest: occurrencesMax + 1}
	for j, polls := x.bStart, 0; j < x.bEnd && err == nil; polls++ {
		j = run.from(j)
		if polls%pollLines == 0 {
			err = fair.Pause(h.ctx)
		}
	}
	for _, class := range h.classesA[x.aStart:x.aEnd] {
		h.counts[class] = 0
	}
	return run.best, run.hasCommon && run.rarest > occurrencesMax, err
}

// runSearch looks for the best run of common lines.
type runSearch struct {
	*histogram
	box
	best      box
	rarest    int32 // occurrences in a of the rarest line of the best run
	hasCommon bool
}

// from tries the runs through line j of b and returns the line of b to go on at, which is behind
// all of them.
func (r *runSearch) from(j int) int {
	class := r.classesB[j]
	after := j + 1
	if r.counts[class] == 0 {
		return after
	}
	r.hasCommon = true
	if r.counts[class] > r.rarest {
		return after
	}
	for i := r.first[class]; i >= 0; {
		run, rarest := r.extend(int(i), j)
		after = max(after, run.bEnd)
		if run.aEnd-run.aStart > r.best.aEnd-r.best.aStart || rarest < r.rarest {
			r.best, r.rarest = run, rarest
		}
		for i >= 0 && int(i) < run.aEnd {
			i = r.next[i]
		}
	}
	return after
}

// extend returns the common run around line i of a and j of b, which are equal, and the number of
// occurrences in a of its rarest line.
func (r *runSearch) extend(i, j int) (run box, rarest int32) {
	run = box{aStart: i, aEnd: i + 1, bStart: j, bEnd: j + 1}
	rarest = r.counts[r.classesA[i]]
	for run.aStart > r.aStart && run.bStart > r.bStart && r.classesA[run.aStart-1] == r.classesB[run.bStart-1] {
		run.aStart--
		run.bStart--
		rarest = min(rarest, r.counts[r.classesA[run.aStart]])
	}
	for run.aEnd < r.aEnd && run.bEnd < r.bEnd && r.classesA[run.aEnd] == r.classesB[run.bEnd] {
		rarest = min(rarest, r.counts[r.classesA[run.aEnd]])
		run.aEnd++
		run.bEnd++
	}
	return run, rarest
}
