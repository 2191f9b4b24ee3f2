package merge

import (
	"context"
	"fmt"
	"slices"

	"packhorse/pack/object"
)

// recursion merges commits whose merge bases have to be merged.
type recursion struct {
	Options
	merger *Merger
}

// virtual is a commit, or the virtual merge of several, which has a tree and reaches everything
// that they reach.
type virtual struct {
	commits []object.ID
	tree    object.ID // zero for that of the one commit
}

func commitOf(id object.ID) virtual { return virtual{commits: []object.ID{id}} }

// depthMax bounds the nesting of merges of bases; no real history needs more.
const depthMax = 64

// The names of the sides in a virtual base.
const (
	temporaryOurs   = "Temporary merge branch 1"
	temporaryTheirs = "Temporary merge branch 2"
)

// merge merges two commits with the given merge bases, newest first.
func (r *recursion) merge(ctx context.Context, ours, theirs virtual, bases []object.ID, depth int) (*Result, error) {
	if depth > depthMax {
		return nil, fmt.Errorf("merge bases of merge bases, %d deep: %w", depth, ErrTooLarge)
	}
	common := virtual{tree: object.EmptyTreeID}
	for i, id := range slices.Backward(bases) { // the oldest first
		if i == len(bases)-1 {
			common = commitOf(id)
			continue
		}
		tree, err := r.mergeBases(ctx, common, id, depth+1)
		if err != nil {
			return nil, err
		}
		common = virtual{commits: append(slices.Clone(common.commits), id), tree: tree}
	}
	var trees [3]object.ID
	for side, v := range [3]virtual{common, ours, theirs} {
		var err error
		if trees[side], err = r.treeOf(ctx, v); err != nil {
			return nil, err
		}
	}
	o := r.Options
	if depth > 0 {
		o.Ours, o.Theirs = temporaryOurs, temporaryTheirs
	}
	return mergeTrees(ctx, r.merger.objects, trees, o, depth)
}

// mergeBases returns the tree of the virtual merge base that one more commit makes of common.
func (r *recursion) mergeBases(ctx context.Context, common virtual, id object.ID, depth int) (object.ID, error) {
	key := []byte{byte(depth)} // on which conflict markers depend
	for i := range common.commits {
		key = append(key, common.commits[i][:]...)
	}
	key = append(key, id[:]...)
	if tree, ok := r.merger.bases[string(key)]; ok {
		return tree, nil
	}
	bases, err := r.basesOf(ctx, common.commits, id)
	if err != nil {
		return object.ZeroID, err
	}
	merged, err := r.merge(ctx, common, commitOf(id), bases, depth)
	if err != nil {
		return object.ZeroID, err
	}
	r.merger.bases[string(key)] = merged.Tree
	return merged.Tree, nil
}

func (r *recursion) treeOf(ctx context.Context, v virtual) (object.ID, error) {
	if !v.tree.IsZero() {
		return v.tree, nil
	}
	c, err := r.merger.relations.Commit(ctx, v.commits[0])
	return c.Tree, err
}

// basesOf returns the merge bases, newest first, of what several commits reach and another commit:
// of the merge bases that each of them has with it, those that no other one reaches.
func (r *recursion) basesOf(ctx context.Context, commits []object.ID, other object.ID) ([]object.ID, error) {
	if len(commits) == 1 {
		return r.merger.relations.MergeBases(ctx, commits[0], other)
	}
	var all []object.ID
	for _, id := range commits {
		bases, err := r.merger.relations.MergeBases(ctx, id, other)
		if err != nil {
			return nil, err
		}
		for _, base := range bases {
			if !slices.Contains(all, base) {
				all = append(all, base)
			}
		}
	}
	type dated struct {
		id   object.ID
		time int64
	}
	var best []dated
	for _, id := range all {
		reached := false
		for _, descendant := range all {
			if id == descendant {
				continue
			}
			is, err := r.merger.relations.IsAncestor(ctx, id, descendant)
			if err != nil {
				return nil, err
			}
			reached = reached || is
		}
		if reached {
			continue
		}
		c, err := r.merger.relations.Commit(ctx, id)
		if err != nil {
			return nil, err
		}
		best = append(best, dated{id, c.Seconds})
	}
	slices.SortStableFunc(best, func(a, b dated) int { return int(b.time - a.time) })
	ids := make([]object.ID, len(best))
	for i, d := range best {
		ids[i] = d.id
	}
	return ids, nil
}
