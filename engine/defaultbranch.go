package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"packhorse/odb/kv"
	"packhorse/refs"
)

const branchPrefix = "refs/heads/"

// MovedDefault is the outcome of [Repository.MoveDefaultBranch].
type MovedDefault struct {
	Item     Item
	Sequence uint64
}

// MoveDefaultBranch makes a branch the default branch and returns when that is durable. It moves no
// ref, so ref policies do not apply. A repository without branches takes any name.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a branch that does not exist; refs.ErrBusy,
// refs.ErrReceiptMismatch.
func (r *Repository) MoveDefaultBranch(ctx context.Context, actor Actor, name string) (MovedDefault, error) {
	full, err := refs.Main.Branch(name)
	if err != nil {
		return MovedDefault{}, badName("default_branch", err)
	}
	var moved MovedDefault
	change := r.change(&actor, "default-branch")
	done, err := r.transact(ctx, &actor, change, func(ctx context.Context, tx *refs.Tx, now *Repository) error {
		_, err := tx.Lookup(ctx, full)
		if errors.Is(err, refs.ErrNotFound) {
			var others bool
			if others, err = hasBranches(ctx, tx); others {
				err = notFound("branch %q not found", name)
			}
		}
		if err != nil {
			return err
		}
		if err := now.putDefault(tx.Batch(), name); err != nil {
			return err
		}
		moved = MovedDefault{Item: now.record.item(), Sequence: tx.Sequence() + 1}
		return setReceipt(tx, moved)
	})
	if err != nil {
		return MovedDefault{}, err
	}
	if done.Replayed {
		return decodeReceipt[MovedDefault](done.Receipt)
	}
	return moved, nil
}

// Describe returns the repository's item when everything in it is durable.
func (r *Repository) Describe(ctx context.Context) (Item, error) {
	if err := r.host.keys.WaitDurable(ctx, recordKey(r.record.ID)); err != nil {
		return Item{}, fmt.Errorf("wait for record of repository %s: %w", r.record.ID, err)
	}
	return r.record.item(), nil
}

// hasBranches reports whether there is a branch outside of the ephemeral namespace.
func hasBranches(ctx context.Context, tx *refs.Tx) (bool, error) {
	for _, err := range tx.All(ctx, branchPrefix) {
		return err == nil, err
	}
	return false, nil
}

// adopt makes the first branch the default branch if none was chosen: of several that the
// transaction creates main, master, or the only one. It is called last, since it reads the changes
// of the transaction.
func (r *Repository) adopt(ctx context.Context, tx *refs.Tx) error {
	if r.record.Chosen != chosenByNobody {
		return nil
	}
	created := tx.Created(branchPrefix)
	if len(created) == 0 {
		return nil
	}
	dangling, err := r.dangles(ctx, tx)
	if err != nil || !dangling {
		return err
	}
	first := ""
	switch {
	case slices.Contains(created, branchPrefix+"main"):
		first = "main"
	case slices.Contains(created, branchPrefix+"master"):
		first = "master"
	default:
		count := 0
		for ref, err := range tx.All(ctx, branchPrefix) {
			if err != nil {
				return err
			}
			if count++; count > 1 {
				return nil
			}
			first = strings.TrimPrefix(ref.Name, branchPrefix)
		}
	}
	return r.putDefault(tx.Batch(), first)
}

// dangles reports whether, after the changes of the transaction, the default branch does not exist
// while other branches do.
func (r *Repository) dangles(ctx context.Context, tx *refs.Tx) (bool, error) {
	_, err := tx.Lookup(ctx, r.defaultRef(refs.Main))
	if !errors.Is(err, refs.ErrNotFound) {
		return false, err
	}
	return hasBranches(ctx, tx)
}

// putDefault adds another default branch to b. The batch depends on the record being stored as r
// has it.
func (r *Repository) putDefault(b *kv.Batch, name string) error {
	rec, err := decodeRecord(r.record.ID, r.stored)
	if err != nil {
		return err
	}
	rec.DefaultBranch, rec.Chosen = name, chosenLater
	stored, err := rec.encode()
	if err != nil {
		return err
	}
	b.Put(recordKey(rec.ID), stored)
	r.stored = stored
	r.record.follow(&rec)
	return nil
}

// follow copies the fields of the stored record that may have changed since r was read.
func (r *record) follow(stored *record) {
	if stored.Chosen == chosenLater {
		r.DefaultBranch = stored.DefaultBranch
	}
	r.Chosen = stored.Chosen
}

// head finds the default branch of a namespace among names, which were read after the repository: a
// move or a deletion in between does not leave it without one.
//
// Errors: [ErrNotFound] from refs.ErrNotFound when there is no such branch; the name is returned
// even then.
func (r *Repository) head(
	ctx context.Context, names lookuper, ns refs.Namespace,
) (branch string, ref refs.Ref, err error) {
	ref, err = names.Lookup(ctx, r.defaultRef(ns))
	if ns != refs.Main || names.Count() == 0 || !errors.Is(err, refs.ErrNotFound) {
		return r.record.DefaultBranch, ref, err
	}
	rec, _, err := readRecord(ctx, r.host.keys, r.record.ID)
	if err != nil {
		return r.record.DefaultBranch, ref, err
	}
	now := r.record
	now.follow(&rec)
	ref, err = names.Lookup(ctx, branchPrefix+now.DefaultBranch)
	return now.DefaultBranch, ref, err
}
