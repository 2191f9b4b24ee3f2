package kv

import (
	"bytes"
	"context"
	"iter"
	"math"
	"sync"

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

// scratchPages are pages to read into.
var scratchPages = sync.Pool{New: func() any { return new(page) }}

// scratchBytes is the size up to which a page is kept for the next read.
const scratchBytes = 2 * PageBytesMax

// takeScratch returns a page to read into, which the caller releases.
func takeScratch() *page { return scratchPages.Get().(*page) }

// release ends the use of a page and of its pairs.
func (p *page) release() {
	if invariants.Enabled {
		for i := range p.data {
			p.data[i] = 0xdb // whoever still reads a pair is to notice
		}
	}
	if cap(p.data) <= scratchBytes {
		scratchPages.Put(p)
	}
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

// ScanPages is a scan for implementations of [Reader] that read pages of their own. It walks the
// range of options by calling next, with a small Limit first and a growing one later, at most
// [PageCountMax], each time for the range behind the last key.
//
// next returns the first pairs of a range, at most options.Limit of them. It may end a page sooner,
// at its own bound of bytes, but not before the first pair. More says that the range goes on behind
// the page, whatever ended that. The page is read before next is called again, which may reuse its
// memory; next keeps nothing of options.
func ScanPages(options ScanOptions, next func(options ScanOptions) (Page, error)) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		rest := remainder{options: options}
		for rest.begin(); !rest.done; {
			current, err := next(rest.options)
			if err != nil {
				yield(Pair{}, err)
				return
			}
			if invariants.Enabled {
				checkPairs(&rest.options, len(current.Pairs), func(i int) []byte { return current.Pairs[i].Key })
			}
			for i := range current.Pairs {
				if !yield(current.Pairs[i], nil) {
					return
				}
			}
			if len(current.Pairs) == 0 || !current.More {
				return
			}
			rest.shrink(len(current.Pairs), current.Pairs[len(current.Pairs)-1].Key)
		}
	}
}

// scan walks a range page by page; fill reads the first options.Limit pairs of a range.
func scan(options ScanOptions, fill func(into *page, options ScanOptions) error) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		rest := remainder{options: options}
		current := takeScratch()
		defer current.release()
		for rest.begin(); !rest.done; {
			if err := fill(current, rest.options); err != nil {
				yield(Pair{}, err)
				return
			}
			if invariants.Enabled {
				checkPairs(&rest.options, current.pairs(), func(i int) []byte { return current.pair(i).Key })
			}
			for i := range current.pairs() {
				if !yield(current.pair(i), nil) {
					return
				}
			}
			if !current.more {
				return
			}
			rest.shrink(current.pairs(), current.pair(current.pairs()-1).Key)
		}
	}
}

// remainder is what a walk has not yet visited.
type remainder struct {
	options ScanOptions // whose Limit is the size of the next page
	size    int         // of the next page, if the walk has no end before
	left    int         // pairs until the end of the walk
	bound   []byte      // an end of options
	done    bool
}

// begin sets the size of the first page, or done for a range that cannot have keys.
func (r *remainder) begin() {
	r.done = len(r.options.End) > 0 && bytes.Compare(r.options.Start, r.options.End) >= 0
	r.left = r.options.Limit
	if r.left <= 0 {
		r.left = math.MaxInt
	}
	r.size = pagePairsMin
	r.options.Limit = min(r.size, r.left)
}

// shrink removes a page of count pairs, the last of which has the key last.
func (r *remainder) shrink(count int, last []byte) {
	if r.left -= count; r.left == 0 {
		r.done = true
		return
	}
	r.size = min(2*r.size, PageCountMax)
	r.options.Limit = min(r.size, r.left)
	r.bound = append(r.bound[:0], last...)
	if r.options.Reverse {
		r.options.End = r.bound
	} else {
		r.bound = append(r.bound, 0)
		r.options.Start = r.bound
	}
}

// checkPairs checks that a page of count pairs lies in its range, in order, each key once, as
// docs/invariants.md 4 says.
func checkPairs(options *ScanOptions, count int, key func(i int) []byte) {
	for i := range count {
		key, last := key(i), key(max(i-1, 0))
		inside := bytes.Compare(options.Start, key) <= 0 && (len(options.End) == 0 || bytes.Compare(key, options.End) < 0)
		invariants.Check(inside, "kv: %q is no key from %q to %q", key, options.Start, options.End)
		if i > 0 {
			invariants.Check(bytes.Compare(last, key) < 0 != options.Reverse, "kv: %q comes behind %q", key, last)
		}
	}
	invariants.Check(count <= options.Limit, "kv: a page of %d pairs, %d were asked for", count, options.Limit)
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
