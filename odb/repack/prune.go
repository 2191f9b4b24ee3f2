package repack

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// PruneOptions say what [PlanPrune] keeps and when it pays.
type PruneOptions struct {
	packgen.RepackOptions
	// Roots returns what the refs of all namespaces point at, and former values of refs that are kept
	// too; such as are not stored count for nothing. It is called once, when what is written no longer
	// goes to where it might be dropped from.
	Roots func(ctx context.Context) (tips, old []object.ID, err error)
	// ShareMin is the least share of the objects in the layers that would be rewritten that has to be
	// unreachable.
	ShareMin float64
}

// Prune is a removal of unreachable objects that is ready to be committed: layers that held some
// have been rewritten without them.
//
// It is committed by a batch that [odb.Rewrite.Stage] fills, with the repository's head as a
// precondition, and closed in the end. A Drop belongs to one goroutine.
type Prune struct {
	*odb.Rewrite
	repack *packgen.Repack
	count  int
}

// PlanPrune finds what nothing reaches and rewrites the layers that the pool alone uses and that
// hold such objects; nil when there are none, or too few to pay. What is written meanwhile stays.
//
// Errors: [odb.ErrNotFound] for a tip that is not stored, [odb.ErrCorrupt].
func PlanPrune(ctx context.Context, s *odb.Store, pool odb.PoolID, options PruneOptions) (*Prune, error) {
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
	r, err := packgen.NewRepack(ctx, rewrite, options.RepackOptions)
	if err != nil {
		return nil, errors.Join(err, rewrite.Close())
	}
	d := &Prune{Rewrite: rewrite, repack: r}
	pays, err := d.plan(ctx, options.ShareMin, tips, old)
	if err == nil && pays && r.Count() > 0 {
		err = r.Write(ctx)
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
func (d *Prune) ObjectCount() int { return d.count }

// LayerCount is the number of layers that are rewritten.
func (d *Prune) LayerCount() int { return len(d.Chosen()) }

// Look is [odb.Rewrite.Look] at the pace of the plan.
func (d *Prune) Look(ctx context.Context) error {
	return d.Rewrite.Look(ctx, d.repack.Rest)
}

// Close gives up what was not committed.
func (d *Prune) Close() error { return errors.Join(d.repack.Close(), d.Rewrite.Close()) }

// plan decides what is taken into the new segment, and reports whether that pays.
func (d *Prune) plan(ctx context.Context, shareMin float64, tips, old []object.ID) (bool, error) {
	own, err := d.OwnLayers(ctx, false)
	if err != nil {
		return false, err
	}
	roots, err := d.roots(ctx, own, tips, old)
	if err != nil {
		return false, fmt.Errorf("find roots: %w", err)
	}
	total, kept, err := d.repack.TakeReachable(ctx, own, roots)
	d.count = total - kept
	if err != nil || d.count == 0 || float64(d.count) < shareMin*float64(total) {
		return false, err
	}
	return true, d.repack.Prepare(ctx)
}

// roots returns what has to stay with all that it leads to: the tips, those of old that are stored,
// and what is named by objects in layers that are not rewritten, so that the pool stays closed.
func (d *Prune) roots(ctx context.Context, own []odb.OwnLayer, tips, old []object.ID) ([]object.ID, error) {
	for _, id := range old {
		ok, err := d.View().Stores(ctx, id)
		if err != nil {
			return nil, err
		}
		if ok {
			tips = append(tips, id)
		}
	}
	named := make(map[object.ID]struct{})
	err := d.NamedElsewhere(ctx, own, func(id object.ID) error {
		if _, again := named[id]; !again {
			named[id] = struct{}{}
			tips = append(tips, id)
		}
		return d.repack.Rest(ctx)
	})
	return tips, err
}
