package merge

import (
	"context"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// Commits merges commit theirs into commit ours, whose merge bases are given, newest first. Several
// of them, as after criss-cross merges, are merged with each other first, conflicts and all, and
// the result is the base.
//
// Errors: [ErrUnrelated] when there is no merge base and the options do not allow that;
// [ErrTooLarge]; those of reading objects from view, which must stay open while the result is used.
func Commits(
	ctx context.Context, view *odb.View, ours, theirs object.ID, bases []object.ID, o Options,
) (*Result, error) {
	o.fill()
	if len(bases) == 0 && !o.Unrelated {
		return nil, ErrUnrelated
	}
	r := &recursion{objects: newObjects(view, o.BytesMax), Options: o}
	return r.merge(ctx, commitOf(ours), commitOf(theirs), bases, 0)
}

// Trees merges tree theirs into tree ours, both of which come from tree base. Each may be the empty
// tree. Errors: [ErrTooLarge]; those of reading objects from view, which must stay open while the
// result is used.
func Trees(ctx context.Context, view *odb.View, base, ours, theirs object.ID, o Options) (*Result, error) {
	o.fill()
	return mergeTrees(ctx, newObjects(view, o.BytesMax), [3]object.ID{base, ours, theirs}, o, 0)
}

// recursion merges commits whose merge bases have to be merged.
type recursion struct {
	Options
	objects *objects
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
		next := commitOf(id)
		inner, err := r.basesOf(ctx, common.commits, id)
		if err != nil {
			return nil, err
		}
		merged, err := r.merge(ctx, common, next, inner, depth+1)
		if err != nil {
			return nil, err
		}
		common = virtual{commits: append(slices.Clone(common.commits), id), tree: merged.Tree}
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
	return mergeTrees(ctx, r.objects, trees, o, depth)
}

func (r *recursion) treeOf(ctx context.Context, v virtual) (object.ID, error) {
	if !v.tree.IsZero() {
		return v.tree, nil
	}
	row, err := r.objects.view.Graph(ctx, v.commits[0])
	if err != nil {
		return object.ZeroID, fmt.Errorf("read commit %s: %w", v.commits[0], err)
	}
	return row.Tree, nil
}

// basesOf returns the merge bases, newest first, of what several commits reach and another commit:
// of the merge bases that each of them has with it, those that no other one reaches.
func (r *recursion) basesOf(ctx context.Context, commits []object.ID, other object.ID) ([]object.ID, error) {
	if len(commits) == 1 {
		return revwalk.MergeBases(ctx, r.objects.view, commits[0], other)
	}
	var all []object.ID
	for _, id := range commits {
		bases, err := revwalk.MergeBases(ctx, r.objects.view, id, other)
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
			is, err := revwalk.IsAncestor(ctx, r.objects.view, id, descendant)
			if err != nil {
				return nil, err
			}
			reached = reached || is
		}
		if reached {
			continue
		}
		row, err := r.objects.view.Graph(ctx, id)
		if err != nil {
			return nil, err
		}
		best = append(best, dated{id, row.Seconds})
	}
	slices.SortStableFunc(best, func(a, b dated) int { return int(b.time - a.time) })
	ids := make([]object.ID, len(best))
	for i, d := range best {
		ids[i] = d.id
	}
	return ids, nil
}
