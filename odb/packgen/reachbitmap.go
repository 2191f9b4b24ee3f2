package packgen

import (
	"context"
	"errors"

	"packhorse/odb/progress"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

const (
	// nearCommitsMax is the number of the client's commits that are walked to find bitmaps whose only
	// use is a smaller answer.
	nearCommitsMax = 10_000
)

// errManyCommits says that a walk would send so many commits that bitmaps are faster.
var errManyCommits = errors.New("odb: many commits")

// fitsBitmaps reports whether bitmaps can answer a request: they cover whole histories, and know no
// depth of objects.
func (r *reaching) fitsBitmaps(request *Request) bool {
	return len(request.ClientShallow)+len(request.Shallow)+len(request.Unshallow) == 0 && !r.filter.byPlace()
}

func (r *reaching) coverage() *coverage {
	return &coverage{inv: r.inv, bitmaps: r.inv.bitmaps.add, progress: r.progress}
}

// hideNear marks the client's objects by the bitmaps of its nearest commits that have one. The walk
// finds the others that matter, those at the changed paths.
//
// So the server knows more of the client's objects than by a walk, as git does with bitmaps. A thin
// pack may use them as bases, and objects that reappear from older history are not sent.
func (r *reaching) hideNear(ctx context.Context, haves []object.ID) error {
	if r.inv.bitmaps == nil {
		return nil
	}
	_, err := r.coverage().commits(ctx, haves, &r.hidden, nearCommitsMax)
	if errors.Is(err, errFar) {
		return nil
	}
	return err
}

// takeCovered finds the objects that the wants reach and the haves do not, by fill-in traversal.
func (r *reaching) takeCovered(ctx context.Context, request *Request, wants, haves *sides) error {
	c := r.coverage()
	has := r.inv.newSet()
	if err := c.all(ctx, haves.commits, nil, &has); err != nil {
		return err
	}
	r.hidden.unite(&has)
	r.send = has
	if err := c.all(ctx, wants.commits, wants.trees, &r.send); err != nil {
		return err
	}
	if invariants.Enabled {
		r.checkCovered(ctx, wants, haves)
	}
	r.ask(wants)
	if err := r.applyFilter(ctx, request.Wants); err != nil {
		return err
	}
	r.send.subtract(&r.hidden)
	return nil
}

// checkedCountMax is the number of objects of a view up to which a walk verifies fill-in traversal.
const checkedCountMax = 5000

// checkCovered verifies that a walk without bitmaps finds the same objects.
func (r *reaching) checkCovered(ctx context.Context, wants, haves *sides) {
	count := r.inv.unpackedCount()
	for _, g := range r.inv.segments {
		count += g.Count
	}
	if count > checkedCountMax {
		return
	}
	none := func(context.Context, object.ID, *objectSet) (bool, error) { return false, nil }
	walk := &coverage{inv: r.inv, bitmaps: none, progress: &progress.Meter{}}
	walked := r.inv.newSet()
	if walk.all(ctx, haves.commits, nil, &walked) != nil || walk.all(ctx, wants.commits, wants.trees, &walked) != nil {
		return // a canceled request, or damage that other reads report
	}
	for layer := range r.inv.unpackedLayer() + 1 {
		invariants.Check(r.send.count(layer) == walked.count(layer),
			"odb: bitmaps reach %d objects of layer %d of %d, and a walk %d",
			r.send.count(layer), layer, r.inv.unpackedLayer(), walked.count(layer))
	}
}
