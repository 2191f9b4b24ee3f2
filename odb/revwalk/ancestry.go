package revwalk

import (
	"context"

	"packhorse/pack/object"
)

// Ancestry is the ancestry of a commit that grows, as a branch does into which others are merged:
// it finds the merge bases with other commits, and visits each commit of its own once for all of
// them. It belongs to one goroutine.
type Ancestry struct {
	relations *Relations
	graph     *Graph
	tip       object.ID
	// visited are commits with markTrunk whose parents do not have it yet, by generation number.
	visited Queue
	other   Queue // commits that the one in question reaches
}

// NewAncestry returns the ancestry of tip. Relations have one at most, which may be used between
// their questions. Errors: [odb.ErrNotFound], [ErrNotCommit].
func NewAncestry(ctx context.Context, relations *Relations, tip object.ID) (*Ancestry, error) {
	a := &Ancestry{relations: relations, graph: relations.graph}
	return a, a.Advance(ctx, tip)
}

// Advance adds a commit that leads to the last one: a merge of it, or one made on top of it.
// Errors: [odb.ErrNotFound], [ErrNotCommit].
func (a *Ancestry) Advance(ctx context.Context, tip object.ID) error {
	n, err := a.graph.Tip(ctx, tip)
	if err != nil {
		return err
	}
	a.tip = tip
	return a.claim(ctx, n)
}

// claim marks a commit as one of the ancestry.
func (a *Ancestry) claim(ctx context.Context, n int32) error {
	if a.graph.Has(n, markTrunk) {
		return nil
	}
	if err := a.graph.Rank(ctx, n); err != nil {
		return err
	}
	a.graph.Set(n, markTrunk)
	a.visited.Push(n, int64(a.graph.Generation(n)))
	return nil
}

// visit marks all of the ancestry down to a generation number: only a commit with a higher one
// leads to a commit of that generation.
func (a *Ancestry) visit(ctx context.Context, generation uint32) error {
	for a.visited.Len() > 0 {
		if a.visited.firstKey() <= int64(generation) {
			return nil
		}
		n := a.visited.Pop()
		for i := range a.graph.ParentCount(n) {
			if err := a.claim(ctx, a.graph.ParentsOf(n)[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// MergeBases returns what [Relations.MergeBases] does for the tip and another commit. Errors:
// [odb.ErrNotFound], [ErrNotCommit].
func (a *Ancestry) MergeBases(ctx context.Context, id object.ID) ([]object.ID, error) {
	n, err := a.graph.Tip(ctx, id)
	if err != nil {
		return nil, err
	}
	found, err := a.common(ctx, n)
	a.relations.forget()
	a.other = Queue{heap: a.other.heap[:0]}
	if err != nil {
		return nil, err
	}
	bases, alike := a.graph.newestFirst(found)
	if alike {
		return a.relations.MergeBases(ctx, a.tip, id) // these come in the order of its walk
	}
	return bases, nil
}

// common returns the best common ancestors of the tip and a commit, by descending generation
// number. It marks commits as markTwo, and those behind a common ancestor as markStale.
func (a *Ancestry) common(ctx context.Context, n int32) (found []int32, err error) {
	fresh := 0 // commits in the queue that lie behind no common ancestor
	reach := func(n int32, m marks) error {
		if err := a.graph.Rank(ctx, n); err != nil {
			return err
		}
		before := a.graph.nodes[n].marks
		a.relations.set(n, m)
		switch {
		case before&markTwo == 0:
			a.other.Push(n, int64(a.graph.Generation(n)))
			if m&markStale == 0 {
				fresh++
			}
		case before&markStale == 0 && m&markStale != 0: // it is in the queue: its child came out just now
			fresh--
		}
		return nil
	}
	if err := reach(n, markTwo); err != nil {
		return nil, err
	}
	for fresh > 0 {
		n := a.other.Pop()
		if err := a.visit(ctx, a.graph.Generation(n)); err != nil {
			return nil, err
		}
		m := a.graph.nodes[n].marks & (markTwo | markStale)
		if m&markStale == 0 {
			fresh--
			if a.graph.Has(n, markTrunk) {
				found = append(found, n)
				m |= markStale
			}
		}
		for i := range a.graph.ParentCount(n) {
			if err := reach(a.graph.ParentsOf(n)[i], m); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}
