package repack

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// PruneOptions say what [PlanPrune] keeps and when a prune pays.
type PruneOptions struct {
	packgen.RepackOptions
	// Roots returns the targets of the refs of all namespaces, and the retained former ref values. IDs
	// of old that are not stored are ignored. It is called once, after the hot layer has been frozen.
	Roots func(ctx context.Context) (tips, old []object.ID, err error)
	// ShareMin is the smallest share of unreachable objects among those in the layers to rewrite, from
	// 0 to 1. Below it, PlanPrune does nothing.
	ShareMin float64
}

// Prune is a removal of unreachable objects that is ready to commit: it has rewritten the layers
// that held some without them.
//
// A batch that [odb.Rewrite.Stage] fills commits it, with the repository's head as a precondition.
// The caller closes it. A Prune belongs to one goroutine.
type Prune struct {
	*odb.Rewrite
	repack *packgen.Repack
	count  int
}

// PlanPrune finds unreachable objects and rewrites the layers that hold them and that no other pool
// uses. It returns nil when there are none, or too few to pay. Objects that are written meanwhile
// stay.
//
// Errors: [odb.ErrNotFound] for a tip that is not stored, [odb.ErrCorrupt], those of options.Roots.
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
	p := &Prune{Rewrite: rewrite, repack: r}
	pays, err := p.plan(ctx, options.ShareMin, tips, old)
	if err == nil && pays && r.Count() > 0 {
		err = r.Write(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("plan a prune of pool %s: %w", pool, err), p.Close())
	}
	if !pays {
		return nil, p.Close()
	}
	return p, nil
}

// ObjectCount returns the number of pruned objects, duplicates included.
func (p *Prune) ObjectCount() int { return p.count }

// LayerCount returns the number of rewritten layers.
func (p *Prune) LayerCount() int { return len(p.Chosen()) }

// Look is [odb.Rewrite.Look] at the pace of the plan.
func (p *Prune) Look(ctx context.Context) error {
	return p.Rewrite.Look(ctx, p.repack.Rest)
}

// Close discards the new segment unless it was committed.
func (p *Prune) Close() error { return errors.Join(p.repack.Close(), p.Rewrite.Close()) }

// plan chooses the objects of the new segment, and reports whether the prune pays.
func (p *Prune) plan(ctx context.Context, shareMin float64, tips, old []object.ID) (bool, error) {
	own, err := p.OwnLayers(ctx, false)
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(own, func(l odb.OwnLayer) bool { return l.Count > 0 }) {
		return false, nil // of a fork that has written nothing, or of a base: all of it is shared
	}
	roots, err := p.roots(ctx, own, tips, old)
	if err != nil {
		return false, fmt.Errorf("find roots: %w", err)
	}
	total, kept, err := p.repack.TakeReachable(ctx, own, roots)
	p.count = total - kept
	if err != nil || p.count == 0 || float64(p.count) < shareMin*float64(total) {
		return false, err
	}
	return true, p.repack.Prepare(ctx)
}

// roots returns the objects to keep with all that they reach: the tips, those of old that are
// stored, and the objects that layers which stay name, so that the pool stays closed.
func (p *Prune) roots(ctx context.Context, own []odb.OwnLayer, tips, old []object.ID) ([]object.ID, error) {
	for _, id := range old {
		ok, err := p.View().Stores(ctx, id)
		if err != nil {
			return nil, err
		}
		if ok {
			tips = append(tips, id)
		}
	}
	named := make(map[object.ID]struct{})
	err := p.NamedElsewhere(ctx, own, func(id object.ID) error {
		if _, again := named[id]; !again {
			named[id] = struct{}{}
			tips = append(tips, id)
		}
		return p.repack.Rest(ctx)
	})
	return tips, err
}
