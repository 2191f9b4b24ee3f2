package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/pack/object"
	"packhorse/refs"
)

// UndoRequest says what is undone: either all transactions after a moment, or one transaction.
type UndoRequest struct {
	// Sequence is the transaction that is taken back; 0 for those after the moment To.
	Sequence uint64
	To       Moment
	// Refs select refs by their full names; none selects those of the main namespace, and all that
	// the one transaction changed.
	Refs refs.Patterns
	// Force takes back a transaction also from the refs that have moved since.
	Force bool
}

// Undone is the outcome of an undo. An idempotency record stores it.
type Undone struct {
	Sequence uint64
	// To is the position whose refs are there again; 0 when one transaction was taken back.
	To uint64
	// Refs are the refs that have another value now, in the order of their names.
	Refs []UndoneRef `json:"-"` // the journal has them
	// Unmatched are the indexes of the first patterns of the request that match no ref which has
	// changed since the moment, or in the transaction that was taken back.
	Unmatched []int `json:",omitempty"`
	// Elsewhere are the positions of a transaction that was taken back in the journals of other
	// repositories, where it stays.
	Elsewhere []refs.Position `json:",omitempty"`
}

// UndoneRef is a ref that was given a former value; the zero ID is that of no ref.
type UndoneRef struct {
	Name          string
	Before, After object.ID
}

// causeUndo is the cause of an undo in the journal.
const causeUndo = "undo"

// Undo gives refs the values that they had, in one transaction that can be undone like any other,
// and returns when that is durable. The policies bind it as they bind a push.
//
// Errors: [ErrInvalid]; [ErrMoved], when a ref that the transaction changed has moved since;
// [ErrDefaultBranch], when the default branch did not exist; those of [Repository.At] for a moment
// out of reach, and refs.ErrFuture for a transaction that is to come; refs.ErrLimit,
// refs.ErrNameConflict, refs.ErrDenied, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) Undo(ctx context.Context, actor Actor, request UndoRequest) (Undone, error) {
	var to uint64
	var refusal error // left to the transaction, where an equal request may have been answered before
	if request.Sequence == 0 {
		var then *Repository
		if then, refusal = r.At(ctx, request.To); refusal == nil {
			to = then.MomentSequence()
		}
	}
	planned := false
	undone, err := changeRefs(ctx, r, &actor, causeUndo,
		func(ctx context.Context, tx *refs.Tx, now *Repository) (Undone, error) {
			planned = true
			undone := Undone{Sequence: tx.After(), To: to}
			if refusal != nil {
				return undone, refusal
			}
			if err := now.checkKept(ctx, &request, to); err != nil {
				return undone, err
			}
			err := fair.Do(ctx, func(ctx context.Context) error { return now.undo(ctx, tx, &request, &undone) })
			// With an idempotency key the transaction has a record all the same.
			if err == nil && len(undone.Refs) == 0 && actor.Receipt == nil {
				undone.Sequence, err = tx.Sequence(), refs.ErrUnchanged
			}
			return undone, err
		})
	if err == nil && !planned { // an equal request was answered before
		undone.Refs, err = r.movedBy(ctx, undone.Sequence)
	}
	return undone, err
}

// checkKept refuses an undo beyond the readable history, of which maintenance may have removed
// objects. A try that it finds within holds: maintenance raises the floor of the history before it
// prunes, and a prune advances the head, which the transaction requires. Errors: [ErrPast].
func (r *Repository) checkKept(ctx context.Context, request *UndoRequest, to uint64) error {
	if request.Sequence != 0 {
		to = request.Sequence - 1
	}
	window, err := r.host.names.Window(ctx, r.record.ID)
	if err != nil {
		return r.gone(err)
	}
	if !window.Below(to) {
		return nil
	}
	err = r.outside(ctx)
	if past, ok := errors.AsType[*PastError](err); ok {
		past.Transaction = request.Sequence
	}
	return err
}

// undo makes the changes, and completes what is told of them.
func (r *Repository) undo(ctx context.Context, tx *refs.Tx, request *UndoRequest, undone *Undone) error {
	entries, err := r.undoable(ctx, tx, request, undone)
	if err != nil {
		return err
	}
	var moved MovedError
	names := slices.Sorted(maps.Keys(entries))
	for _, name := range names {
		entry := entries[name]
		if request.Sequence != 0 {
			undone.Elsewhere = entry.Elsewhere
		}
		ref, err := tx.Lookup(ctx, name)
		if err != nil && !errors.Is(err, refs.ErrNotFound) {
			return fmt.Errorf("look up %s: %w", name, err)
		}
		switch {
		case ref.ID == entry.Before:
			delete(entries, name)
			continue
		case request.Sequence != 0 && !request.Force && ref.ID != entry.After:
			moved.add(MovedRef{Name: name, Expected: entry.After, Actual: ref.ID})
		case entry.Before.IsZero() && name == r.defaultRef(refs.Main):
			return &failure{kind: ErrDefaultBranch, text: fmt.Sprintf(
				"branch %q did not exist, and is the default branch, which cannot be deleted: make another one the default first",
				r.record.DefaultBranch)}
		}
		undone.Refs = append(undone.Refs, UndoneRef{Name: name, Before: ref.ID, After: entry.Before})
		if err := fair.Pause(ctx); err != nil {
			return err
		}
	}
	if moved.Count > 0 {
		moved.Sequence = request.Sequence
		return &moved
	}
	if len(undone.Refs) == 0 {
		return nil
	}
	return r.withStored(ctx, tx, func(v *odb.View) error { return restore(ctx, tx, v, undone.Refs, entries) })
}

// restore gives refs their former values. Deletions come first: they may make room for a name.
func restore(
	ctx context.Context, tx *refs.Tx, v *odb.View, undone []UndoneRef, entries map[string]*refs.Entry,
) error {
	for _, deletes := range []bool{true, false} {
		for i := range undone {
			u := &undone[i]
			if u.After.IsZero() != deletes {
				continue
			}
			if !deletes {
				if _, err := v.Stat(ctx, u.After); err != nil {
					return unreadable(fmt.Errorf("read the former value of %s: %w", u.Name, err))
				}
			}
			if err := tx.Restore(ctx, entries[u.Name]); err != nil {
				return err
			}
			if err := fair.Pause(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// undoable returns the entries before which each selected ref had the wanted value, and tells which
// patterns selected none.
func (r *Repository) undoable(
	ctx context.Context, tx *refs.Tx, request *UndoRequest, undone *Undone,
) (map[string]*refs.Entry, error) {
	entries := make(map[string]*refs.Entry)
	matched := make([]bool, len(request.Refs))
	defer func() { undone.Unmatched = firstUnmatched(matched) }()
	if request.Sequence != 0 {
		changed, err := tx.Transaction(ctx, request.Sequence)
		if err != nil {
			return nil, err
		}
		for i := range changed {
			if request.Refs.Mark(changed[i].Ref, matched) {
				entries[changed[i].Ref] = &changed[i]
			}
		}
		if len(entries) == 0 {
			return nil, invalid("sequence: transaction %d changed no ref that is asked for", request.Sequence)
		}
		return entries, nil
	}
	for entry, err := range tx.Since(ctx, undone.To) {
		if err != nil {
			return nil, err
		}
		if err := fair.Pause(ctx); err != nil {
			return nil, err
		}
		if entry.Ref == "" || entries[entry.Ref] != nil || !request.selects(entry.Ref, matched) {
			continue
		}
		if len(entries) == refs.UpdatesMax {
			return nil, &refs.LimitError{What: "refs that have changed since", Max: refs.UpdatesMax}
		}
		entries[entry.Ref] = &entry
	}
	return entries, nil
}

// unmatchedMax bounds the patterns that an undo tells as those that match nothing.
const unmatchedMax = 100

func firstUnmatched(matched []bool) (indexes []int) {
	for i, is := range matched {
		if !is && len(indexes) < unmatchedMax {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// selects reports whether a ref gets its value of the moment, and marks the patterns that match it.
func (request *UndoRequest) selects(name string, matched []bool) bool {
	if ns, _ := refs.SplitNamespace(name); len(request.Refs) == 0 {
		return ns == refs.Main
	}
	return request.Refs.Mark(name, matched)
}

// movedBy returns what a transaction has changed, as its answer tells it.
func (r *Repository) movedBy(ctx context.Context, sequence uint64) ([]UndoneRef, error) {
	page, err := r.host.names.Events(ctx, r.record.ID, sequence-1, 1)
	if err != nil && !errors.Is(err, refs.ErrTrimmed) {
		return nil, r.gone(err)
	}
	var undone []UndoneRef
	for _, entry := range page.Entries {
		if entry.Sequence == sequence {
			undone = append(undone, UndoneRef{Name: entry.Ref, Before: entry.Before, After: entry.After})
		}
	}
	slices.SortFunc(undone, func(a, b UndoneRef) int { return cmp.Compare(a.Name, b.Name) })
	return undone, nil
}

// MovedError is [ErrMoved] with its evidence, which is durable when the error is returned.
type MovedError struct {
	Sequence uint64
	// Refs are the first ones of Count.
	Refs  []MovedRef
	Count int
}

// MovedRef is a ref that is at Actual, where a transaction has left it at Expected.
type MovedRef struct {
	Name             string
	Expected, Actual object.ID
}

// movedMax bounds the refs in a [MovedError].
const movedMax = 100

func (e *MovedError) add(ref MovedRef) {
	if e.Count++; e.Count <= movedMax {
		e.Refs = append(e.Refs, ref)
	}
}

func (e *MovedError) Error() string {
	more := ""
	if e.Count > 1 {
		more = fmt.Sprintf(", and %d more refs", e.Count-1)
	}
	return fmt.Sprintf("%s has moved since transaction %d%s; force takes the transaction back nevertheless",
		e.Refs[0].Name, e.Sequence, more)
}

// Is reports whether target is [ErrMoved].
func (e *MovedError) Is(target error) bool { return target == ErrMoved }
