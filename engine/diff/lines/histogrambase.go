package lines

import "context"

// Base is a text with which several are compared by the histogram diff: its lines are hashed once
// for all of them. It belongs to one goroutine.
type Base struct {
	text    Text
	classes *classes
	numbers []int32 // the class of each line; nil until the first comparison
}

// NewBase returns a base. The text must not change.
func NewBase(t Text) *Base {
	c := &classes{a: newSide(t)}
	c.reserve(t.Count())
	return &Base{text: t, classes: c}
}

// Text returns the text of the base.
func (b *Base) Text() Text { return b.text }

// Size returns about how much memory the base takes, its content included, in bytes.
func (b *Base) Size() int64 {
	const slotsOfLine, classSize = 4 * 4, 16 // four slots a line at most
	return int64(len(b.text.data)) + int64(b.text.Count())*(4+4+slotsOfLine+classSize)
}

// Diff is the function [Diff] for the base and another text, with the histogram diff and without a
// cut of the common end.
func (b *Base) Diff(ctx context.Context, after Text, o Options) ([]Change, error) {
	old, fresh := newSide(b.text), newSide(after)
	if err := compareByHistogram(ctx, b, old, fresh); err != nil {
		return nil, err
	}
	return changesOf(ctx, old, fresh, o)
}

// classify returns the class of each line of another text, those of equal lines of the base among
// them, and a number above all of them. Only lines between the common ends have to be hashed.
func (b *Base) classify(ctx context.Context, other *side) (numbers []int32, count int, err error) {
	c := b.classes
	if b.numbers == nil {
		all := make([]int32, b.text.Count())
		if err := c.numberLines(ctx, c.a, 0, all); err != nil {
			c.forget(0)
			return nil, 0, err
		}
		b.numbers = all
	}
	start := commonStart(b.text, other.Text)
	end := commonEnd(b.text, other.Text, min(b.text.Count(), other.Count())-start)
	numbers = make([]int32, other.Count())
	copy(numbers, b.numbers[:start])
	copy(numbers[len(numbers)-end:], b.numbers[len(b.numbers)-end:])
	between := numbers[start : len(numbers)-end]

	own := len(c.all)
	c.b = other
	c.reserve(len(between))
	err = c.numberLines(ctx, other, start, between)
	count = len(c.all)
	c.forget(own)
	return numbers, count, err
}
