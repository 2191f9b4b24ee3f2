package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/odb"
	"packhorse/pack/object"
	"packhorse/refs"
)

// branchChange computes what a branch is to become before the repository's turn begins, since that
// may take long. The transaction then only holds the branch to the tip that was computed on. It is
// computed again when the branch has moved meanwhile.
type branchChange struct {
	cause  string
	target MergeBranch
	likely []string // stored names of the refs that plan probably looks up
	// plan computes the change by the refs in names, and writes new objects into objects. It is called
	// for each try.
	plan func(ctx context.Context, names lookuper, objects *odb.Quarantine) (branchMove, error)
	// verify, if not nil, is asked in the repository's turn whether what was planned is still as the
	// request wants it.
	verify func(ctx context.Context, names lookuper, view *odb.View) error
	// outcome is what an idempotency record stores, after the last plan, with the position in the
	// journal.
	outcome func(sequence uint64) any
	// aheadMax is how often the change is computed ahead before it is computed in the repository's
	// turn, where nobody on this server can move the branch; 0 means always ahead.
	aheadMax int
}

// branchMove is what a plan makes of a branch.
type branchMove struct {
	Old, Tip object.ID // equal when the branch stays
	// Forward says that Tip was not made by the plan.
	Forward bool
	// Needs are stored objects on which the new ones build and that no ref may lead to.
	Needs []object.ID
}

// stored is the stored name of the branch.
func (b *MergeBranch) stored() string { return b.Namespace.Full(branchPrefix + b.Name) }

// moveTriesMax bounds how often a change of a branch is computed because the branch has moved:
// docs/invariants.md 43.
const moveTriesMax = 16

// errTargetMoved says that a branch has moved since its change was computed.
var errTargetMoved = errors.New("engine: the target of a change moved")

// moveBranch changes a branch and returns when that is durable. Refusals of the plan are left to
// the transaction, where an idempotency key may replay an earlier success instead. Errors: those of
// the plan; refs.ErrBusy when the branch moved too often; those of [Repository.transact].
func (r *Repository) moveBranch(ctx context.Context, actor *Actor, c *branchChange) (refs.Result, error) {
	for try := range moveTriesMax {
		done, err := r.moveBranchOnce(ctx, actor, c, c.aheadMax == 0 || try < c.aheadMax)
		if !errors.Is(err, errTargetMoved) {
			return done, err
		}
	}
	return refs.Result{}, fmt.Errorf("%s into %s: %w", c.cause, c.target.Name, refs.ErrBusy)
}

// moveBranchOnce is one try, which fails with errTargetMoved if another one has to follow.
func (r *Repository) moveBranchOnce(
	ctx context.Context, actor *Actor, c *branchChange, ahead bool,
) (done refs.Result, err error) {
	view, err := r.writable(ctx, actor)
	if err != nil {
		return done, err
	}
	defer view.Close()
	defer actor.hold.Release()
	objects := view.NewQuarantine(ctx)
	defer objects.Close() // once the write is durable, this cannot fail it any more
	named := []string{c.target.stored()}
	if !ahead {
		named = append(named, c.likely...)
	}
	change := r.change(actor, c.cause, named...)
	change.FastForward = onTop
	var move branchMove
	var refusal error
	if ahead {
		move, refusal = r.planAhead(ctx, objects, c)
	}
	if refusal == nil && move.Forward {
		refusal = verifyAhead(ctx, &change, refs.Move{Name: c.target.stored(), Before: move.Old, After: move.Tip})
	}
	done, err = r.transact(ctx, actor, change, objects, func(ctx context.Context, tx *refs.Tx, _ *Repository) error {
		if refusal != nil {
			return refusal
		}
		if err := objects.Refresh(ctx); err != nil {
			return fmt.Errorf("refresh objects: %w", err)
		}
		if !ahead {
			if move, err = c.plan(ctx, tx, objects); err != nil {
				return err
			}
		}
		if err := c.make(ctx, tx, objects, &move); err != nil {
			return err
		}
		return setReceipt(tx, c.outcome(tx.After()))
	})
	return done, err
}

// planAhead computes a change by the refs that are durable now.
func (r *Repository) planAhead(
	ctx context.Context, objects *odb.Quarantine, c *branchChange,
) (move branchMove, err error) {
	names, err := r.names(ctx, append([]string{c.target.stored()}, c.likely...)...)
	if err != nil {
		return move, err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	return c.plan(ctx, names, objects)
}

// make moves the branch, and stages the new objects. A branch that stays is refs.ErrUnchanged.
func (c *branchChange) make(ctx context.Context, tx *refs.Tx, objects *odb.Quarantine, move *branchMove) error {
	name := c.target.stored()
	switch ref, err := tx.Lookup(ctx, name); {
	case errors.Is(err, refs.ErrNotFound), err == nil && ref.ID != move.Old:
		return errTargetMoved
	case err != nil:
		return fmt.Errorf("look up branch %s: %w", c.target.Name, err)
	}
	if c.verify != nil {
		if err := c.verify(ctx, tx, objects.View()); err != nil {
			return err
		}
	}
	if move.Tip == move.Old {
		return refs.ErrUnchanged
	}
	if err := move.require(ctx, objects.View().Linked()); err != nil {
		return err
	}
	if err := objects.Stage(ctx, tx.Batch()); err != nil {
		return fmt.Errorf("stage objects: %w", err)
	}
	return tx.Set(ctx, name, &move.Old, move.Tip, object.ZeroID)
}

// require makes sure that what the branch moves to is there: no ref leads to it, so it may have
// been pruned.
func (m *branchMove) require(ctx context.Context, linked *odb.View) error {
	if err := requireCommit(ctx, linked, m.Tip); err != nil {
		return err
	}
	for _, id := range m.Needs {
		if _, err := linked.Stat(ctx, id); err != nil {
			return fmt.Errorf("look up %s: %w", id, err)
		}
	}
	return nil
}
