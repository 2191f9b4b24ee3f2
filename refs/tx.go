package refs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// Tx is one try of a transaction: the repository as of one sequence, and the changes to it.
//
// Set and Delete take effect in the order of their calls, on the state that the Tx shows: to let
// one name make room for another (refs/heads/a for refs/heads/a/b), delete first. A call that
// returns an error has no effect, and the transaction may go on without it. A Tx serves one
// goroutine, until the prepare function that got it returns.
type Tx struct {
	store  *Store
	repo   RepoID
	change *Change
	head   head
	batch  *kv.Batch
	reader kv.Reader // of the state on which the transaction builds

	ahead   lookahead
	stored  overlay        // refs as they were found; holds all names of changed, except in a repository without refs
	changed overlay        // the new states of refs
	order   []string       // the names of changed, in the order of the calls
	slots   map[string]int // the index of a name in order
	folders map[string]int // how many refs of changed exist below a folder
	long    map[string]int // how many names share their first bytes, as far as known; see checkLong
	count   int            // the repository's refs, changes included
	dropped bool
	park    func(head []byte) error // see Park; nil when the repository does not come back
	next    head                    // the one that follows; see putChanges
	mark    uint64                  // leads from the token of head to that of next
	also    []Position              // of the transaction in other journals
	result  []byte
	told    *feedRow // for the feed of the organization; nil when there is nothing to tell
}

func newTx(store *Store, repo RepoID, change *Change, head head) *Tx {
	return &Tx{
		store: store, repo: repo, change: change, head: head, batch: kv.NewBatch(), reader: store.kv, count: int(head.count),
		stored: make(overlay), changed: make(overlay),
		slots: make(map[string]int), folders: make(map[string]int), long: make(map[string]int),
	}
}

// Sequence returns the sequence on which the transaction builds. Its own will be the next one.
func (tx *Tx) Sequence() uint64 { return tx.head.sequence }

// After returns the sequence that the repository has when the transaction has ended: its own, or in
// a dry run the one on which it builds.
func (tx *Tx) After() uint64 {
	if tx.change.DryRun {
		return tx.head.sequence
	}
	return tx.head.sequence + 1
}

// Follows reports whether the transaction builds on a state: whether all transactions since then,
// which the journal tells, are in one history with it. It is false when the journal does not reach
// back as far.
func (tx *Tx) Follows(ctx context.Context, state Version) (bool, error) {
	if state.Sequence > tx.head.sequence {
		return false, nil
	}
	token := state.token
	for entry, err := range journal(ctx, tx.reader, tx.repo, state.Sequence, tx.head.sequence) {
		if errors.Is(err, ErrTrimmed) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if entry.Index == 0 {
			token ^= entry.mark
		}
	}
	return token == tx.head.token, nil
}

// Count returns the number of refs in all namespaces.
func (tx *Tx) Count() int { return tx.count }

// Batch returns the batch of the transaction, to which the caller may add rows and preconditions of
// its own. A precondition that does not hold when the batch is applied counts as a stale head: the
// transaction is tried again from its start.
func (tx *Tx) Batch() *kv.Batch { return tx.batch }

// SetResult sets the content of the receipt of the transaction, if one was requested.
func (tx *Tx) SetResult(result []byte) { tx.result = result }

// Drop makes the transaction remove the repository: see [Drop]. Changes of refs in the same
// transaction have no effect.
func (tx *Tx) Drop() { tx.dropped = true }

// Park is [Tx.Drop] for a repository that may come back: its refs and its journal stay, and put is
// given the head from which [Store.Revive] goes on, to add it to the batch of the transaction. The
// journal has an entry of the transaction.
func (tx *Tx) Park(put func(head []byte) error) { tx.dropped, tx.park = true, put }

// Lookup returns the ref of a stored name, changes included. Errors: [ErrNotFound].
func (tx *Tx) Lookup(ctx context.Context, name string) (Ref, error) {
	ref, changed := tx.changed[name]
	if !changed {
		var err error
		if ref, err = tx.find(ctx, name); err != nil {
			return Ref{}, err
		}
	}
	if ref == nil {
		return Ref{}, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return *ref, nil
}

// find returns the stored ref, nil for "absent".
func (tx *Tx) find(ctx context.Context, name string) (*Ref, error) {
	if ref, ok := tx.stored[name]; ok || tx.head.count == 0 {
		return ref, nil
	}
	ref, err := tx.read(ctx, name)
	switch {
	case errors.Is(err, ErrNotFound):
		tx.stored[name] = nil
	case err != nil:
		return nil, err
	default:
		tx.stored[name] = &ref
	}
	return tx.stored[name], nil
}

// read returns the stored ref, or [ErrNotFound].
func (tx *Tx) read(ctx context.Context, name string) (Ref, error) {
	ref, err := tx.ahead.ref(tx.repo, name)
	if errors.Is(err, errNotPrefetched) {
		return readRef(ctx, tx.reader, tx.repo, name)
	}
	return ref, err
}

// Created returns the names, in the order of the calls, of the refs that the transaction creates
// and whose stored names begin with prefix.
func (tx *Tx) Created(prefix string) []string {
	var names []string
	for _, name := range tx.order {
		if strings.HasPrefix(name, prefix) && tx.stored[name] == nil && tx.changed[name] != nil {
			names = append(names, name)
		}
	}
	return names
}

// All walks the refs whose stored names begin with prefix in byte order, changes included.
func (tx *Tx) All(ctx context.Context, prefix string) iter.Seq2[Ref, error] {
	end := prefixEnd(prefix)
	return tx.changed.over(scanRefs(ctx, tx.reader, tx.repo, prefix, end), prefix, end)
}

// Set points the ref of a stored name to id, and creates it if need be. peeled is the object that
// the tag object id leads to, and zero if id is no tag object. With expected the ref must be there
// now, where the zero ID stands for "absent". The caller has made sure that the objects exist, with
// everything reachable from them.
//
// Errors: [ErrInvalidName], [ErrDenied], [ErrStale], [ErrNameConflict], [ErrLimit].
func (tx *Tx) Set(ctx context.Context, name string, expected *object.ID, id, peeled object.ID) error {
	if err := checkStored(name); err != nil {
		return err
	}
	if id.IsZero() {
		return fmt.Errorf("set %s: %w", name, object.ErrInvalidID)
	}
	before, err := tx.expect(ctx, name, expected)
	if err != nil {
		return err
	}
	after := &Ref{Name: name, ID: id, Peeled: peeled}
	if before == nil {
		if err := tx.checkRoom(ctx, name); err != nil {
			return err
		}
		after.Created = Creation{Sequence: tx.head.sequence + 1, Index: uint32(tx.slot(name))}
		after.createdMillis = tx.change.Time.UnixMilli()
	} else {
		after.Created, after.createdMillis = before.Created, before.createdMillis
		if before.ID == id {
			return nil
		}
	}
	if err := tx.permit(ctx, name, before, after); err != nil {
		return err
	}
	return tx.record(name, before, after)
}

// Delete removes the ref of a stored name. With expected the ref must be there now.
//
// Errors: [ErrNotFound] when there is none and none was expected, else [ErrStale];
// [ErrInvalidName], [ErrDenied], [ErrLimit].
func (tx *Tx) Delete(ctx context.Context, name string, expected *object.ID) error {
	if err := checkStored(name); err != nil {
		return err
	}
	before, err := tx.expect(ctx, name, expected)
	if err != nil {
		return err
	}
	if before == nil {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err := tx.permit(ctx, name, before, nil); err != nil {
		return err
	}
	return tx.record(name, before, nil)
}

// expect returns the ref, nil for "absent", if it has the expected value and a policy allows any
// change of it at all.
func (tx *Tx) expect(ctx context.Context, name string, expected *object.ID) (*Ref, error) {
	ops := tx.change.Policy.Ops(name)
	if op, ok := ops.unknown(); ok {
		return nil, &DeniedError{Name: name, Op: op, Detail: "the op is not known"}
	}
	if ops.Has(NoPush) {
		return nil, &DeniedError{Name: name, Op: NoPush}
	}
	ref, err := tx.Lookup(ctx, name)
	actual := ref.ID
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	if expected != nil && *expected != actual {
		return nil, &StaleError{Name: name, Expected: *expected, Actual: actual}
	}
	if err != nil {
		return nil, nil
	}
	return &ref, nil
}

// record takes a change that passed every check.
func (tx *Tx) record(name string, before, after *Ref) error {
	if _, ok := tx.slots[name]; !ok {
		if len(tx.order) == UpdatesMax {
			return &LimitError{What: "refs changed by one transaction", Max: UpdatesMax}
		}
		tx.slots[name] = len(tx.order)
		tx.order = append(tx.order, name)
	}
	step := 0
	if before == nil {
		step++
	}
	if after == nil {
		step--
	}
	tx.count += step
	if len(name) > plainNameMax {
		if _, known := tx.long[name[:plainNameMax]]; known {
			tx.long[name[:plainNameMax]] += step
		}
	}
	if was, is := tx.changed[name] != nil, after != nil; was != is {
		for folder := range folders(name) {
			if is {
				tx.folders[folder]++
			} else {
				tx.folders[folder]--
			}
		}
	}
	tx.changed[name] = after
	return nil
}

// slot returns the place of a name among the changes, or the one that it will get.
func (tx *Tx) slot(name string) int {
	if slot, ok := tx.slots[name]; ok {
		return slot
	}
	return len(tx.order)
}
