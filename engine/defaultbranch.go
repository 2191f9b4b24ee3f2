package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"packhorse/engine/catalog"
	"packhorse/refs"
)

const branchPrefix = "refs/heads/"

// Describe returns the repository's item when everything in it is durable.
func (r *Repository) Describe(ctx context.Context) (Item, error) {
	if err := r.host.keys.WaitDurable(ctx, catalog.RecordKey(r.record.ID)); err != nil {
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

// adopt makes the first branch the default branch if none was chosen. It is called last, since it
// reads the changes of the transaction.
func (r *Repository) adopt(ctx context.Context, tx *refs.Tx) error {
	first, err := r.firstBranch(ctx, tx)
	if err != nil || first == "" {
		return err
	}
	return r.putDefault(tx, first)
}

// firstBranch returns the branch that becomes the default branch since none was chosen: of several
// that the transaction creates main, master, or the only one. It is "" when nothing changes.
func (r *Repository) firstBranch(ctx context.Context, tx *refs.Tx) (first string, err error) {
	if r.record.Chosen != chosenByNobody {
		return "", nil
	}
	created := tx.Created(branchPrefix)
	if len(created) == 0 {
		return "", nil
	}
	dangling, err := r.dangles(ctx, tx)
	if err != nil || !dangling {
		return "", err
	}
	switch {
	case slices.Contains(created, branchPrefix+"main"):
		return "main", nil
	case slices.Contains(created, branchPrefix+"master"):
		return "master", nil
	}
	for ref, err := range tx.All(ctx, branchPrefix) {
		if err != nil || first != "" {
			return "", err
		}
		first = strings.TrimPrefix(ref.Name, branchPrefix)
	}
	return first, nil
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

// putDefault adds another default branch to the batch of a transaction. The batch depends on the
// record being stored as r has it.
func (r *Repository) putDefault(tx *refs.Tx, name string) error {
	return r.putRecord(tx.Batch(), func(rec *record) {
		rec.DefaultBranch = r.record.DefaultBranch // that of the upstream is not stored
		rec.replaceDefault(name, tx.Sequence()+1)
		rec.Chosen = chosenLater
	})
}

// follow copies the fields of the stored record that may have changed since r was read.
func (r *record) follow(stored *record) {
	if stored.Chosen == chosenLater {
		r.DefaultBranch = stored.DefaultBranch
	}
	r.Chosen, r.Name, r.Renamed = stored.Chosen, stored.Name, stored.Renamed
	r.PastDefaults = stored.PastDefaults
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
	if ns != refs.Main || r.past != nil || names.Count() == 0 || !errors.Is(err, refs.ErrNotFound) {
		return r.record.DefaultBranch, ref, err
	}
	rec, _, err := r.host.readRecord(ctx, r.record.ID)
	if err != nil {
		return r.record.DefaultBranch, ref, err
	}
	now := r.record
	now.follow(&rec)
	ref, err = names.Lookup(ctx, branchPrefix+now.DefaultBranch)
	return now.DefaultBranch, ref, err
}
