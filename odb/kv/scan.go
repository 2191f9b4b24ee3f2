package kv

import (
	"bytes"
	"context"
	"iter"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"packhorse/pack/invariants"
)

// pagePairsMin is the size of a scan's first page, for the walks that end early. Pages grow to
// PageCountMax.
const pagePairsMin = 16

// page is a run of pairs, copied out of the store.
type page struct {
	data []byte
	ends []int // of each key and each value, alternating
	more bool  // the range continues after the last pair
}

// pairs returns how many pairs the page has.
func (p *page) pairs() int { return len(p.ends) / 2 }

// pair returns the pair at index i.
func (p *page) pair(i int) Pair {
	start := 0
	if i > 0 {
		start = p.ends[2*i-1]
	}
	middle, end := p.ends[2*i], p.ends[2*i+1]
	return Pair{Key: p.data[start:middle:middle], Value: p.data[middle:end:end]}
}

// Scan implements Reader.
func (p *Pebble) Scan(ctx context.Context, options ScanOptions) iter.Seq2[Pair, error] {
	return scan(options, func(into *page, options ScanOptions) error {
		if err := p.enter(ctx); err != nil {
			return err
		}
		defer p.life.RUnlock()
		return into.fill(ctx, p.db, options)
	})
}

// scan walks a range page by page; fill reads the first options.Limit pairs of a range.
func scan(options ScanOptions, fill func(into *page, options ScanOptions) error) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		rest, left := options, options.Limit
		if left <= 0 {
			left = math.MaxInt
		}
		if len(rest.End) > 0 && bytes.Compare(rest.Start, rest.End) >= 0 {
			return
		}
		var current page
		var bound []byte
		for size := pagePairsMin; ; size = min(2*size, PageCountMax) {
			rest.Limit = min(size, left)
			if err := fill(&current, rest); err != nil {
				yield(Pair{}, err)
				return
			}
			if invariants.Enabled {
				current.check(&rest)
			}
			for i := range current.pairs() {
				if !yield(current.pair(i), nil) {
					return
				}
			}
			left -= current.pairs()
			if !current.more || left == 0 {
				return
			}
			bound = append(bound[:0], current.pair(current.pairs()-1).Key...)
			if rest.Reverse {
				rest.End = bound
			} else {
				bound = append(bound, 0)
				rest.Start = bound
			}
		}
	}
}

// check checks that the page has pairs of the range, in order, each once: docs/invariants.md 4.
func (p *page) check(options *ScanOptions) {
	for i := range p.pairs() {
		key := p.pair(i).Key
		inside := bytes.Compare(options.Start, key) <= 0 && (len(options.End) == 0 || bytes.Compare(key, options.End) < 0)
		invariants.Check(inside, "kv: %q is no key from %q to %q", key, options.Start, options.End)
		if i > 0 {
			last := p.pair(i - 1).Key
			invariants.Check(bytes.Compare(last, key) < 0 != options.Reverse, "kv: %q comes behind %q", key, last)
		}
	}
	invariants.Check(p.pairs() <= options.Limit,
		"kv: a page of %d pairs, %d were asked for", p.pairs(), options.Limit)
}

// fill reads the first pairs of the range in options.
func (p *page) fill(ctx context.Context, r pebble.Reader, options ScanOptions) (err error) {
	p.data, p.ends, p.more = p.data[:0], p.ends[:0], false
	bounds := &pebble.IterOptions{LowerBound: options.Start}
	if len(options.End) > 0 {
		bounds.UpperBound = options.End
	}
	it, err := r.NewIterWithContext(ctx, bounds)
	if err != nil {
		return translate(err)
	}
	defer func() {
		if closeErr := it.Close(); closeErr != nil && err == nil {
			err = translate(closeErr)
		}
	}()
	first, next := it.First, it.Next
	if options.Reverse {
		first, next = it.Last, it.Prev
	}
	for valid := first(); valid; valid = next() {
		if p.pairs() == options.Limit || len(p.data) >= PageBytesMax {
			p.more = true
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return translate(err)
		}
		p.data = append(p.data, it.Key()...)
		p.ends = append(p.ends, len(p.data))
		p.data = append(p.data, value...)
		p.ends = append(p.ends, len(p.data))
	}
	return translate(it.Error())
}
