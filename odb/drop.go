package odb

import (
	"context"
	"errors"
	"fmt"

	"packhorse/pack/object"
)

// DropOptions say what [Store.PlanDrop] keeps and when it pays.
type DropOptions struct {
	RepackOptions
	// Roots returns what the refs of all namespaces point at, and former values of refs that are kept too; such as are not stored count for
	// nothing. It is called once, when what is written no longer goes to where it might be dropped from.
	Roots func(ctx context.Context) (tips, old []object.ID, err error)
	// ShareMin is the least share of the objects in the layers that would be rewritten that has to be unreachable.
	ShareMin float64
}

// Drop is a removal of unreachable objects that is ready to be committed: layers that held some have been rewritten without them.
//
// It is committed by a batch that [Rewrite.Stage] fills, with the repository's head as a precondition, and closed in the end. A Drop belongs to
// one goroutine.
type Drop struct {
	*Rewrite
	repack *repack
	count  int
}

// PlanDrop finds what nothing reaches and rewrites the layers that the pool alone uses and that hold such objects; nil when there are none, or
// too few to pay. What is written meanwhile stays.
//
// Errors: [ErrNotFound] for a tip that is not stored, [ErrCorrupt].
func (s *Store) PlanDrop(ctx context.Context, pool PoolID, options DropOptions) (*Drop, error) {
	var tips, old []object.ID
	rewrite, err := s.BeginRewrite(ctx, pool, func(ctx context.Context) (err error) {
		if tips, old, err = options.Roots(ctx); err != nil {
			err = fmt.Errorf("find roots: %w", err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r, err := newRepack(ctx, rewrite, options.RepackOptions)
	if err != nil {
		return nil, errors.Join(err, rewrite.Close())
	}
	d := &Drop{Rewrite: rewrite, repack: r}
	pays, err := d.plan(ctx, options.ShareMin, tips, old)
	if err == nil && pays && r.plan.count > 0 {
		err = r.write(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("plan a drop in pool %s: %w", pool, err), d.Close())
	}
	if !pays {
		return nil, d.Close()
	}
	return d, nil
}

// ObjectCount is the number of objects that are dropped, copies of others included.
func (d *Drop) ObjectCount() int { return d.count }

// LayerCount is the number of layers that are rewritten.
func (d *Drop) LayerCount() int { return len(d.Chosen()) }

// Look is [Rewrite.Look] at the pace of the plan.
func (d *Drop) Look(ctx context.Context) error {
	return d.Rewrite.Look(ctx, d.repack.plan.inv.pace.rest)
}

// Close gives up what was not committed.
func (d *Drop) Close() error { return errors.Join(d.repack.close(), d.Rewrite.Close()) }

// plan decides what is taken into the new segment, and reports whether that pays.
func (d *Drop) plan(ctx context.Context, shareMin float64, tips, old []object.ID) (bool, error) {
	own, err := d.OwnLayers(ctx, false)
	if err != nil {
		return false, err
	}
	live, err := d.mark(ctx, own, tips, old)
	if err != nil {
		return false, fmt.Errorf("mark: %w", err)
	}
	total, err := d.choose(ctx, own, live)
	if err != nil || d.count == 0 || float64(d.count) < shareMin*float64(total) {
		return false, err
	}
	return true, d.repack.prepare(ctx)
}

// mark returns what has to stay: what the roots reach, and what is named by objects in layers that are not rewritten, so that the pool stays
// closed.
func (d *Drop) mark(ctx context.Context, own []OwnLayer, tips, old []object.ID) (*objectSet, error) {
	request := PackRequest{Wants: tips}
	for _, id := range old {
		ok, err := d.View().Stores(ctx, id)
		if err != nil {
			return nil, err
		}
		if ok {
			request.Wants = append(request.Wants, id)
		}
	}
	named := make(map[object.ID]struct{})
	err := d.NamedElsewhere(ctx, own, func(id object.ID) error {
		if _, again := named[id]; !again {
			named[id] = struct{}{}
			request.Wants = append(request.Wants, id)
		}
		return d.repack.plan.inv.pace.rest(ctx)
	})
	if err != nil {
		return nil, err
	}
	walk := newReaching(d.repack.plan.inv, &request, &d.repack.plan.progress)
	if err := walk.run(ctx, &request); err != nil {
		return nil, err
	}
	return &walk.send, d.keepOwn(ctx, &walk.send)
}

// keepOwn adds to what is live the pool's own copies of what a borrowed segment holds too. The walk met the first of an object's places, and a
// fork may read its own copy for certain, not what it took.
func (d *Drop) keepOwn(ctx context.Context, live *objectSet) error {
	layers := d.repack.plan.inv.layers
	for i, borrowed := range layers {
		if !d.View().isBorrowed(borrowed) {
			continue
		}
		for j := i + 1; j < len(layers); j++ {
			if d.View().isBorrowed(layers[j]) {
				continue
			}
			if err := live.addTwins(ctx, i, j); err != nil {
				return fmt.Errorf("look for own copies of what is borrowed: %w", err)
			}
		}
	}
	return nil
}

// choose takes what is live of the layers that hold something else too, and returns how many objects these have.
func (d *Drop) choose(ctx context.Context, own []OwnLayer, live *objectSet) (total int, err error) {
	r := d.repack
	inv := r.plan.inv
	kept := 0
	for _, l := range own {
		if l.Hot { // a delta that stays hot may have its base in any of them
			d.Choose(l.ID)
			total += l.Count
		}
	}
	err = r.eachHot(ctx, func(h handle) {
		if live.has(h) && r.plan.send.add(h) {
			kept++
		}
	})
	if err != nil {
		return 0, err
	}
	for _, l := range own {
		for i, other := range inv.layers {
			if other.id != l.ID || live.count(i) == l.Count {
				continue
			}
			d.Choose(l.ID)
			r.plan.send.words[i] = live.words[i]
			total += l.Count
			kept += live.count(i)
		}
	}
	d.count = total - kept
	return total, nil
}
