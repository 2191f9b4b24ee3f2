package lines

import (
	"context"
	"math"

	"packhorse/odb/fair"
)

const (
	// snakeLong is the number of consecutive equal lines that is a good sign.
	snakeLong = 20
	// costHeuristic is the cost from which on a search may end at a promising place.
	costHeuristic = 256
	// costLimitMin is the least cost at which a search ends wherever it is.
	costLimitMin = 256
	// promising is the number of lines for each unit of cost that makes a place promising.
	promising = 4
)

// myers compares the kept lines of two sides.
type myers struct {
	ctx  context.Context // a comparison is within one call
	a, b *side

	costMax int
	// forward and backward hold, for each diagonal (index in a less index in b), how far the paths
	// from the front and from the back of a box have come, as an index in a. Diagonal 0 is at zero.
	forward, backward []int32
	zero              int
}

func newMyers(ctx context.Context, a, b *side) *myers {
	diagonals := len(a.kept) + len(b.kept) + 3
	reach := make([]int32, 2*diagonals+2)
	return &myers{
		ctx: ctx, a: a, b: b, costMax: max(rootAbove(diagonals), costLimitMin),
		forward: reach[:diagonals+1], backward: reach[diagonals+1:], zero: len(b.kept) + 1,
	}
}

// box is a part of the comparison: some lines of a against some of b.
type box struct{ aStart, aEnd, bStart, bEnd int }

// compare marks what differs in a box. Minimal forbids the heuristics.
func (m *myers) compare(x box, minimal bool) error {
	a, b := m.a.classes, m.b.classes
	for {
		for x.aStart < x.aEnd && x.bStart < x.bEnd && a[x.aStart] == b[x.bStart] {
			x.aStart++
			x.bStart++
		}
		for x.aStart < x.aEnd && x.bStart < x.bEnd && a[x.aEnd-1] == b[x.bEnd-1] {
			x.aEnd--
			x.bEnd--
		}
		if x.aStart == x.aEnd || x.bStart == x.bEnd {
			for _, index := range m.a.kept[x.aStart:x.aEnd] {
				m.a.mark(int(index))
			}
			for _, index := range m.b.kept[x.bStart:x.bEnd] {
				m.b.mark(int(index))
			}
			return nil
		}
		s, err := m.split(x, minimal)
		if err != nil {
			return err
		}
		head := box{aStart: x.aStart, aEnd: s.a, bStart: x.bStart, bEnd: s.b}
		tail := box{aStart: s.a, aEnd: x.aEnd, bStart: s.b, bEnd: x.bEnd}
		headMinimal, tailMinimal := s.headMinimal, s.tailMinimal
		if head.size() > tail.size() { // the larger one is handled here, so that the stack stays low
			head, tail = tail, head
			headMinimal, tailMinimal = tailMinimal, headMinimal
		}
		if err := m.compare(head, headMinimal); err != nil {
			return err
		}
		x, minimal = tail, tailMinimal
	}
}

func (x box) size() int { return x.aEnd - x.aStart + x.bEnd - x.bStart }

// split is where a box is divided, and which halves are compared without heuristics.
type split struct {
	a, b                     int
	headMinimal, tailMinimal bool
}

// search looks for the middle of a shortest path through a box from both ends at once.
type search struct {
	*myers
	box
	cost int
	// low and high are the outermost diagonals that paths have reached. Every second one between them
	// is used.
	frontLow, frontHigh int
	backLow, backHigh   int
}

// frontMid and backMid are the diagonals of the two ends.
func (s *search) frontMid() int { return s.aStart - s.bStart }
func (s *search) backMid() int  { return s.aEnd - s.bEnd }

// split divides a box with something different at both ends.
func (m *myers) split(x box, minimal bool) (split, error) {
	s := search{myers: m, box: x}
	s.frontLow, s.frontHigh = s.frontMid(), s.frontMid()
	s.backLow, s.backHigh = s.backMid(), s.backMid()
	m.forward[s.frontMid()+m.zero] = int32(x.aStart)
	m.backward[s.backMid()+m.zero] = int32(x.aEnd)
	for s.cost = 1; ; s.cost++ {
		if s.cost%64 == 0 {
			if err := fair.Pause(m.ctx); err != nil {
				return split{}, err
			}
		}
		met, longFront, found := s.advance()
		if found {
			return met, nil
		}
		met, longBack, found := s.retreat()
		if found {
			return met, nil
		}
		if minimal {
			continue
		}
		if (longFront || longBack) && s.cost > costHeuristic {
			if at, ok := s.promisingFront(); ok {
				return at, nil
			}
			if at, ok := s.promisingBack(); ok {
				return at, nil
			}
		}
		if s.cost >= m.costMax {
			return s.furthest(), nil
		}
	}
}

// advance takes the paths from the front one step further. It returns where one met a path from the
// back, and whether one ran through many equal lines.
func (s *search) advance() (met split, long, found bool) {
	a, b := s.a.classes[:s.aEnd], s.b.classes[:s.bEnd]
	forward, zero := s.forward, s.zero
	if s.frontLow > s.aStart-s.bEnd {
		s.frontLow--
		forward[s.frontLow-1+zero] = -1
	} else {
		s.frontLow++
	}
	if s.frontHigh < s.aEnd-s.bStart {
		s.frontHigh++
		forward[s.frontHigh+1+zero] = -1
	} else {
		s.frontHigh--
	}
	odd := (s.frontMid()-s.backMid())&1 != 0
	for d := s.frontHigh; d >= s.frontLow; d -= 2 {
		i := int(max(forward[d-1+zero]+1, forward[d+1+zero]))
		begin := i
		j := i - d
		for i < len(a) && j < len(b) && a[i] == b[j] {
			i++
			j++
		}
		if i-begin > snakeLong {
			long = true
		}
		forward[d+zero] = int32(i)
		if odd && s.backLow <= d && d <= s.backHigh && int(s.backward[d+zero]) <= i {
			return split{a: i, b: j, headMinimal: true, tailMinimal: true}, long, true
		}
	}
	return split{}, long, false
}

// retreat is advance for the paths from the back.
func (s *search) retreat() (met split, long, found bool) {
	a, b := s.a.classes, s.b.classes
	backward, zero := s.backward, s.zero
	aStart, bStart := s.aStart, s.bStart
	if s.backLow > s.aStart-s.bEnd {
		s.backLow--
		backward[s.backLow-1+zero] = math.MaxInt32
	} else {
		s.backLow++
	}
	if s.backHigh < s.aEnd-s.bStart {
		s.backHigh++
		backward[s.backHigh+1+zero] = math.MaxInt32
	} else {
		s.backHigh--
	}
	even := (s.frontMid()-s.backMid())&1 == 0
	for d := s.backHigh; d >= s.backLow; d -= 2 {
		i := int(min(backward[d-1+zero], backward[d+1+zero]-1))
		begin := i
		j := i - d
		for i > aStart && j > bStart && a[i-1] == b[j-1] {
			i--
			j--
		}
		if begin-i > snakeLong {
			long = true
		}
		backward[d+zero] = int32(i)
		if even && s.frontLow <= d && d <= s.frontHigh && i <= int(s.forward[d+zero]) {
			return split{a: i, b: j, headMinimal: true, tailMinimal: true}, long, true
		}
	}
	return split{}, long, false
}

// promisingFront finds the best path from the front that got far for its cost and ends in a run of
// equal lines.
func (s *search) promisingFront() (at split, ok bool) {
	a, b := s.a.classes, s.b.classes
	best := promising * s.cost
	for d := s.frontHigh; d >= s.frontLow; d -= 2 {
		i := int(s.forward[d+s.zero])
		j := i - d
		got := i - s.aStart + j - s.bStart - distance(d, s.frontMid())
		if got <= best || i < s.aStart+snakeLong || i >= s.aEnd || j < s.bStart+snakeLong || j >= s.bEnd {
			continue
		}
		run := 0
		for run < snakeLong && a[i-run-1] == b[j-run-1] {
			run++
		}
		if run == snakeLong {
			best, ok = got, true
			at = split{a: i, b: j, headMinimal: true}
		}
	}
	return at, ok
}

// promisingBack is promisingFront for the paths from the back.
func (s *search) promisingBack() (at split, ok bool) {
	a, b := s.a.classes, s.b.classes
	best := promising * s.cost
	for d := s.backHigh; d >= s.backLow; d -= 2 {
		i := int(s.backward[d+s.zero])
		j := i - d
		got := s.aEnd - i + s.bEnd - j - distance(d, s.backMid())
		if got <= best || i <= s.aStart || i > s.aEnd-snakeLong || j <= s.bStart || j > s.bEnd-snakeLong {
			continue
		}
		run := 0
		for run < snakeLong && a[i+run] == b[j+run] {
			run++
		}
		if run == snakeLong {
			best, ok = got, true
			at = split{a: i, b: j, tailMinimal: true}
		}
	}
	return at, ok
}

func distance(d, e int) int { return max(d-e, e-d) }

// furthest returns the end of the path that has come furthest, from either end, when the search has
// cost enough.
func (s *search) furthest() split {
	front, frontA := -1, -1
	for d := s.frontHigh; d >= s.frontLow; d -= 2 {
		i := min(int(s.forward[d+s.zero]), s.aEnd, s.bEnd+d)
		if sum := i + i - d; sum > front {
			front, frontA = sum, i
		}
	}
	back, backA := math.MaxInt, math.MaxInt
	for d := s.backHigh; d >= s.backLow; d -= 2 {
		i := max(int(s.backward[d+s.zero]), s.aStart, s.bStart+d)
		if sum := i + i - d; sum < back {
			back, backA = sum, i
		}
	}
	if s.aEnd+s.bEnd-back < front-s.aStart-s.bStart {
		return split{a: frontA, b: front - frontA, headMinimal: true}
	}
	return split{a: backA, b: back - backA, tailMinimal: true}
}
