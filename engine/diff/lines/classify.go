package lines

import (
	"bytes"
	"context"
	"math/bits"

	"packhorse/odb/fair"
)

// classes numbers the distinct lines between the common ends of two texts and counts their
// occurrences in both whole texts.
type classes struct {
	a, b  *side
	slots []int32 // number of a class + 1; open addressing
	shift int     // of a hash, to its slot
	all   []class
}

// class is one distinct line.
type class struct {
	hash           uint32
	line           int32 // index of its first occurrence, in b if negative: ^index
	countA, countB int32
}

func newClasses(a, b *side) *classes {
	c := &classes{a: a, b: b}
	c.reserve(a.end - a.start + b.end - b.start)
	return c
}

// reserve makes room for n more classes.
func (c *classes) reserve(n int) {
	size := bits.Len(uint(len(c.all)+n)) + 1 // at most half full
	if 1<<size <= len(c.slots) {
		return
	}
	c.slots, c.shift = make([]int32, 1<<size), 32-size
	for number := range c.all {
		slot := int(c.all[number].hash >> c.shift)
		for c.slots[slot] != 0 {
			slot = (slot + 1) & (len(c.slots) - 1)
		}
		c.slots[slot] = int32(number + 1)
	}
}

// find returns the number of the class of a line of s, or -1, and the slot where it would go.
func (c *classes) find(s *side, index int) (number, slot int, hash uint32) {
	hash = s.hash(index)
	for slot = int(hash >> c.shift); ; slot = (slot + 1) & (len(c.slots) - 1) {
		number = int(c.slots[slot]) - 1
		if number < 0 || c.all[number].hash == hash && bytes.Equal(c.first(number), s.Line(index)) {
			return number, slot, hash
		}
	}
}

func (c *classes) first(number int) []byte {
	index := int(c.all[number].line)
	if index < 0 {
		return c.b.Line(^index)
	}
	return c.a.Line(index)
}

// number returns the class of a line of s, a new one if need be; at is the position of the line, as
// in [class].
func (c *classes) number(s *side, index, at int) int {
	number, slot, hash := c.find(s, index)
	if number < 0 {
		number = len(c.all)
		c.all = append(c.all, class{hash: hash, line: int32(at)})
		c.slots[slot] = int32(number + 1)
	}
	return number
}

// numberLines sets numbers to the classes of the lines of s from an index on, and counts them.
func (c *classes) numberLines(ctx context.Context, s *side, start int, numbers []int32) error {
	for i := range numbers {
		if i%pollLines == 0 {
			if err := fair.Pause(ctx); err != nil {
				return err
			}
		}
		if s == c.b {
			number := c.number(s, start+i, ^(start + i))
			c.all[number].countB++
			numbers[i] = int32(number)
		} else {
			number := c.number(s, start+i, start+i)
			c.all[number].countA++
			numbers[i] = int32(number)
		}
	}
	return nil
}

// forget removes the classes from a number on. Each has a slot that was free before, and none that
// stays was added after it.
func (c *classes) forget(from int) {
	for number := len(c.all) - 1; number >= from; number-- {
		slot := int(c.all[number].hash >> c.shift)
		for c.slots[slot] != int32(number+1) {
			slot = (slot + 1) & (len(c.slots) - 1)
		}
		c.slots[slot] = 0
	}
	c.all, c.b = c.all[:from], nil
}

// numberAll returns the classes of all lines between the common ends, and counts them.
func (c *classes) numberAll(ctx context.Context) (classesA, classesB []int32, err error) {
	classesA, classesB = make([]int32, c.a.end-c.a.start), make([]int32, c.b.end-c.b.start)
	if err := c.numberLines(ctx, c.a, c.a.start, classesA); err != nil {
		return nil, nil, err
	}
	if err := c.numberLines(ctx, c.b, c.b.start, classesB); err != nil {
		return nil, nil, err
	}
	return classesA, classesB, nil
}

// countCommon counts the lines of the common ends, which both texts have, where lines between the
// ends are equal to them.
func (c *classes) countCommon(ctx context.Context) error {
	for _, part := range [...][2]int{{0, c.a.start}, {c.a.end, c.a.Count()}} {
		for i := part[0]; i < part[1]; i++ {
			if i%pollLines == 0 {
				if err := fair.Pause(ctx); err != nil {
					return err
				}
			}
			if number, _, _ := c.find(c.a, i); number >= 0 {
				c.all[number].countA++
				c.all[number].countB++
			}
		}
	}
	return nil
}

// pollLines is the number of lines between two checks of the context.
const pollLines = 1 << 12

const (
	unmatched = 0 // the other text does not have the line
	matched   = 1
	common    = 2 // the other text has it so often that a match says little
)

// commonMax bounds the number from which on occurrences are too many.
const commonMax = 1024

// setAside finds the lines that are worth comparing and marks the others between the common ends as
// changed: those without a match, and those with too many matches in the midst of such without.
func setAside(ctx context.Context, a, b *side) error {
	c := newClasses(a, b)
	classesA, classesB, err := c.numberAll(ctx)
	if err != nil {
		return err
	}
	if err := c.countCommon(ctx); err != nil {
		return err
	}
	a.keep(classesA, func(number int32) int32 { return c.all[number].countB })
	b.keep(classesB, func(number int32) int32 { return c.all[number].countA })
	return nil
}

// keep chooses the lines to compare. numbers holds the class of each line between the common ends,
// matches returns the number of lines of a class in the other text.
func (s *side) keep(numbers []int32, matches func(number int32) int32) {
	limit := int32(min(rootAbove(s.Count()), commonMax))
	kinds := make([]byte, len(numbers))
	for i, number := range numbers {
		switch n := matches(number); {
		case n == 0:
			kinds[i] = unmatched
		case n >= limit:
			kinds[i] = common
		default:
			kinds[i] = matched
		}
	}
	s.kept = make([]int32, 0, len(numbers))
	s.classes = numbers[:0]
	for i, number := range numbers {
		if kinds[i] == matched || kinds[i] == common && !amongUnmatched(kinds, i) {
			s.kept = append(s.kept, int32(s.start+i))
			s.classes = append(s.classes, number)
		} else {
			s.mark(s.start + i)
		}
	}
}

// neighbours is the number of lines on each side that decide whether a common one is kept.
const neighbours = 100

// amongUnmatched reports whether a common line is between unmatched ones, with few enough common
// ones among them: fewer than a quarter of all, itself counted twice.
func amongUnmatched(kinds []byte, i int) bool {
	var unmatchedBefore, unmatchedBehind int
	commons := 2
	for j := i - 1; j >= max(i-neighbours, 0) && kinds[j] != matched; j-- {
		if kinds[j] == unmatched {
			unmatchedBefore++
		} else {
			commons++
		}
	}
	if unmatchedBefore == 0 {
		return false
	}
	for j := i + 1; j <= min(i+neighbours, len(kinds)-1) && kinds[j] != matched; j++ {
		if kinds[j] == unmatched {
			unmatchedBehind++
		} else {
			commons++
		}
	}
	return unmatchedBehind > 0 && commons*4 < commons+unmatchedBefore+unmatchedBehind
}

// rootAbove returns a power of two that is the square root of n or up to twice as much; 1 for 0.
func rootAbove(n int) int { return 1 << ((bits.Len(uint(n)) + 1) / 2) }
