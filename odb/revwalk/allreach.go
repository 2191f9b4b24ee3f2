package revwalk

import (
	"context"
	"math"

	"packhorse/odb"
	"packhorse/pack/object"
)

// AllReach reports whether each of from reaches one of targets or a parent of one: a client that
// has a commit has its parents. Commits in shallow count as having none. IDs in from and targets
// that lead to a tree or a blob are skipped.
//
// As git does, it does not look behind a commit that is older than every target, unless it is in
// from: a client whose commits lie beside the path may still name a commit closer than those
// parents. It visits only commits of a higher generation number than the lowest target, each once.
// Errors: [odb.ErrNotFound].
func AllReach(ctx context.Context, v *odb.View, from, targets, shallow []object.ID) (bool, error) {
	h := NewGraph(v)
	h.CutAt(shallow)
	commits, err := h.CommitsOf(ctx, targets)
	if err != nil {
		return false, err
	}
	floor, oldest := uint32(math.MaxUint32), int64(math.MaxInt64)
	mark := func(n int32) error {
		err := h.Rank(ctx, n)
		h.Set(n, markTwo)
		floor = min(floor, h.nodes[n].generation)
		return err
	}
	for _, id := range commits {
		n := h.Number(id)
		if err := mark(n); err != nil {
			return false, err
		}
		oldest = min(oldest, h.nodes[n].seconds)
		for i := range h.nodes[n].parentCount {
			if err := mark(h.ParentsOf(n)[i]); err != nil {
				return false, err
			}
		}
	}
	starts, err := h.CommitsOf(ctx, from)
	if err != nil {
		return false, err
	}
	for _, id := range starts {
		if reached, err := h.leadsTo(ctx, h.Number(id), floor, oldest); !reached || err != nil {
			return false, err
		}
	}
	return true, nil
}

// leadsTo reports whether n reaches a commit with markTwo; all of those rank at least floor. It
// adds the mark to the path there, so that many starts visit no commit twice. It looks behind a
// commit that is older than oldest only if that is the start.
func (h *Graph) leadsTo(ctx context.Context, n int32, floor uint32, oldest int64) (bool, error) {
	type step struct{ n, next int32 }
	way := []step{{n: n}}
	for len(way) > 0 {
		top := &way[len(way)-1]
		if top.next == 0 {
			if h.Has(top.n, markTwo) {
				for _, s := range way {
					h.Set(s.n, markTwo)
				}
				return true, nil
			}
			if err := h.Load(ctx, top.n); err != nil {
				return false, err
			}
			if h.Has(top.n, MarkSeen) || h.ranksAtMost(top.n, floor) || len(way) > 1 && h.nodes[top.n].seconds < oldest {
				way = way[:len(way)-1]
				continue
			}
			h.Set(top.n, MarkSeen)
		}
		parents := h.ParentsOf(top.n)
		if int(top.next) == len(parents) {
			way = way[:len(way)-1]
			continue
		}
		top.next++
		way = append(way, step{n: parents[top.next-1]})
	}
	return false, nil
}
