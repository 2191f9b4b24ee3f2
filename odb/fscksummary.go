package odb

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// summaryChecker computes the segment summary from the links of all objects of a segment and
// compares it with the stored one. A clone may be made from the summary alone, so a wrong one would
// lose objects.
type summaryChecker struct {
	segment segment.Segment
	stored  segment.Summary
	named   []atomic.Uint64 // a bit per ordinal: an object of the segment names it

	mu       sync.Mutex // guards external
	external map[object.ID]struct{}
}

// newSummaryChecker returns nil for a segment without a summary.
func newSummaryChecker(ctx context.Context, g segment.Segment) (*summaryChecker, error) {
	stored, ok, err := g.Summary(ctx)
	if !ok || err != nil {
		return nil, err
	}
	for _, kind := range segment.SummarySections {
		if list := *stored.List(kind); !slices.IsSortedFunc(list, object.ID.Compare) {
			return nil, fmt.Errorf("%w: a list of the segment summary is not sorted", ErrDisagree)
		}
	}
	return &summaryChecker{
		segment:  g,
		stored:   stored,
		named:    make([]atomic.Uint64, (g.Count+63)/64),
		external: make(map[object.ID]struct{}),
	}, nil
}

// counts reports whether the links of an object belong to the summary.
func (c *summaryChecker) counts(id object.ID) bool { return !c.stored.HasThinBase(id) }

// note records a link of an object of the segment. It may be called concurrently.
func (c *summaryChecker) note(ctx context.Context, link object.ID) error {
	ordinal, ok, err := c.segment.Lookup(ctx, link)
	if err != nil {
		return err
	}
	if ok && !c.stored.HasThinBase(link) {
		c.named[ordinal/64].Or(1 << (ordinal % 64))
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.external) <= len(c.stored.External) { // one too many is enough to know that it is wrong
		c.external[link] = struct{}{}
	}
	return nil
}

// compare returns an error if the stored summary differs.
func (c *summaryChecker) compare(ctx context.Context) error {
	var tips []object.ID
	for ordinal := range uint32(c.segment.Count) {
		if c.named[ordinal/64].Load()&(1<<(ordinal%64)) != 0 {
			continue
		}
		id, err := c.segment.ID(ctx, ordinal)
		if err != nil {
			return err
		}
		if c.counts(id) {
			tips = append(tips, id)
		}
	}
	external := slices.SortedFunc(maps.Keys(c.external), object.ID.Compare)
	if !slices.Equal(tips, c.stored.Tips) || !slices.Equal(external, c.stored.External) {
		return fmt.Errorf("%w: its summary has %d tips and %d external references, its objects have %d and %d",
			ErrDisagree, len(c.stored.Tips), len(c.stored.External), len(tips), len(external))
	}
	return nil
}
