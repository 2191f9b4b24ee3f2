package packgen

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb/progress"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// coverage finds all objects that commits reach by fill-in traversal: it walks only the part of
// history that no bitmap covers.
type coverage struct {
	inv *inventory
	// bitmaps adds the objects that a commit reaches to set, and reports whether it knew them.
	bitmaps  func(ctx context.Context, commit object.ID, set *objectSet) (bool, error)
	progress *progress.Meter
}

// errFar says that no bitmap was found within the limit of a walk.
var errFar = errors.New("odb: no bitmap is near")

// commits adds to set the commits that tips reach, and their trees. It adds the content of a tree
// only if a bitmap covers it, and returns the other trees, the newest first. The set must be empty
// or hold all that its commits reach.
//
// It visits commits from the highest generation number down, so that a commit with a bitmap comes
// before all that it reaches. After walkMax commits it returns errFar.
func (c *coverage) commits(ctx context.Context, tips []object.ID, set *objectSet, walkMax int) ([]handle, error) {
	h := revwalk.NewGraph(c.inv.view)
	var queue revwalk.Queue
	push := func(n int32) error {
		if h.Has(n, revwalk.MarkSeen) {
			return nil
		}
		h.Set(n, revwalk.MarkSeen)
		if err := h.Load(ctx, n); err != nil {
			return err
		}
		if err := h.Rank(ctx, n); err != nil {
			return err
		}
		queue.Push(n, int64(h.Generation(n)))
		return nil
	}
	for _, id := range tips {
		if err := push(h.Number(id)); err != nil {
			return nil, err
		}
	}
	var trees []handle
	for queue.Len() > 0 {
		if err := c.inv.pace.Rest(ctx); err != nil {
			return nil, err
		}
		n := queue.Pop()
		commit, err := c.inv.linked(ctx, h.ID(n))
		if err != nil {
			return nil, err
		}
		if set.has(commit) {
			continue
		}
		if known, err := c.bitmaps(ctx, h.ID(n), set); known || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		if walkMax--; walkMax < 0 {
			return nil, errFar
		}
		set.add(commit)
		tree, err := c.inv.linked(ctx, h.Tree(n))
		if err != nil {
			return nil, fmt.Errorf("tree of commit %s: %w", h.ID(n), err)
		}
		if set.add(tree) {
			trees = append(trees, tree)
		}
		for i := range h.ParentCount(n) {
			if err := push(h.ParentsOf(n)[i]); err != nil {
				return nil, err
			}
		}
	}
	return trees, nil
}

// all adds all objects that commits and trees reach to set. The set must be empty or hold all that
// its objects reach.
func (c *coverage) all(ctx context.Context, commits []object.ID, trees []handle, set *objectSet) error {
	const unbounded = 1 << 40
	roots, err := c.commits(ctx, commits, set, unbounded)
	if err != nil {
		return err
	}
	for _, tree := range trees {
		if set.add(tree) {
			roots = append(roots, tree)
		}
	}
	// The walk records visited objects in seen, which is the set itself.
	r := &reaching{
		inv: c.inv, filter: &Filter{}, progress: c.progress, depthMax: c.inv.view.Limits().TreeDepth,
		send: c.inv.newSet(), seen: *set, hidden: c.inv.newSet(),
	}
	w := newTreeWalk(r)
	w.add(treeGroup{trees: roots})
	return w.run(ctx)
}
