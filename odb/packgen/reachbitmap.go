package packgen

import (
	"context"
	"errors"

	"packhorse/pack/object"
)

const (
	// nearCommitsMax is how far the client's history is followed to bitmaps that are only to make an
	// answer smaller.
	nearCommitsMax = 10_000
)

// errManyCommits says that there are more commits to be sent than are best walked.
var errManyCommits = errors.New("odb: many commits")

// fitsBitmaps reports whether bitmaps can tell what a request is about: all of a history, and
// objects whatever their place in it.
func (r *reaching) fitsBitmaps(request *Request) bool {
	return len(request.ClientShallow)+len(request.Shallow)+len(request.Unshallow) == 0 && !r.filter.byPlace()
}

func (r *reaching) coverage() *coverage {
	return &coverage{inv: r.inv, bitmaps: r.inv.bitmaps.add, progress: r.progress}
}

// hideNear marks what the client is known to have by the bitmaps of the nearest commits that have
// one. The walk finds the rest of what it has to know by itself: what lies at the paths that
// changed.
//
// So more is known of the client than a walk tells, as it is to git with bitmaps: objects that a
// thin pack may build on, and objects that came back from further down in history and need not be
// sent.
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

// takeCovered finds everything by bitmaps, walking only what lies above them: what the wants reach,
// less what the haves do.
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
	r.ask(wants)
	if err := r.applyFilter(ctx, request.Wants); err != nil {
		return err
	}
	r.send.subtract(&r.hidden)
	return nil
}
