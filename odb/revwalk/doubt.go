package revwalk

import (
	"context"

	"packhorse/odb/bloom"
	"packhorse/pack/object"
)

// The trace of one folder does not read trees whenever a filter may hold one of its entries: among
// hundreds of entries that is often, and mostly wrong. It notes the commit as the doubt of the
// entry, and goes on as if the commit had not changed it. Where the trace reads a tree later, one
// doubt an entry is settled: the entry is there as in the beginning if the commit has not changed
// it, since no other one may have. So trees are read when an entry is about to have two doubts, and
// when every entry has one, as the walk may have nothing left to find.
//
// Only a commit with one parent is doubted: one that has changed an entry is the entry's last.

// doubt notes for the entries of a set that commit n may have changed them, and returns those that
// may be as in its parent, whose tree is given; nil if there is none.
func (t *tracer) doubt(
	ctx context.Context, n int32, set *traceSet, parent object.ID, changed *bloom.Probe,
) (*traceSet, error) {
	s, found, twice := t.mayHold(set, changed)
	if !found {
		return set, nil
	}
	if twice {
		var err error
		if set, err = t.settleDoubts(ctx, set, t.history.Tree(n)); set == nil || err != nil {
			return nil, err
		}
		s, _, _ = t.mayHold(set, changed)
	}
	for _, i := range t.hits {
		s.items[i].doubt = n + 1
	}
	for _, item := range s.items {
		if item.doubt == 0 {
			return set, nil
		}
	}
	return t.settleDoubts(ctx, set, parent)
}

// mayHold finds the entries of a flat set that a filter may hold, and keeps their places in t.hits.
// It returns the set of the traced folder, whether there are any, and whether one of them is
// doubtful.
func (t *tracer) mayHold(set *traceSet, changed *bloom.Probe) (s *traceSet, found, twice bool) {
	t.hits = t.hits[:0]
	var above bloom.Cover
	for s = set; len(s.items) > 0 && s.items[0].set != nil; s = s.items[0].set {
		var ok bool
		if above, ok = changed.HasBeside(above, s.folder.key(s.items[0].index)); !ok {
			return s, false, false
		}
	}
	for i, item := range s.items {
		if _, ok := changed.HasBeside(above, s.folder.key(item.index)); ok {
			t.hits = append(t.hits, int32(i))
			twice = twice || item.doubt != 0
		}
	}
	return s, len(t.hits) > 0, twice
}

// settleDoubts assigns their commits to the doubtful entries of a set that are not as in a tree,
// that of the commit which the set has reached. It returns the others, without doubts, or nil.
func (t *tracer) settleDoubts(ctx context.Context, set *traceSet, tree object.ID) (*traceSet, error) {
	if !t.flat || !set.doubtful() {
		return set, nil
	}
	same, changed, err := t.split(ctx, set, tree, nil)
	if err == nil && changed != nil {
		err = t.resolve(ctx, changed, object.ZeroID)
	}
	if same == nil || err != nil {
		return nil, err
	}
	items := same.flat().items
	for i := range items {
		items[i].doubt = 0
	}
	return same, nil
}

// flat returns the set of the folder of a flat trace, within one that begins at the root.
func (s *traceSet) flat() *traceSet {
	for len(s.items) > 0 && s.items[0].set != nil {
		s = s.items[0].set
	}
	return s
}

func (s *traceSet) doubtful() bool {
	for _, item := range s.flat().items {
		if item.doubt != 0 {
			return true
		}
	}
	return false
}
