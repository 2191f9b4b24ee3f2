package refs

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// permit applies the ops that depend on the old and the new value of a ref.
func (tx *Tx) permit(ctx context.Context, name string, before, after *Ref) error {
	ops := tx.change.Policy.Ops(name)
	if before != nil && after == nil && ops.Has(NoForcePush) {
		return &DeniedError{Name: name, Op: NoForcePush, Detail: "the ref would be deleted"}
	}
	if before != nil && after != nil && ops.Has(NoForcePush) {
		forward, err := false, error(nil)
		if tx.change.FastForward != nil {
			forward, err = tx.change.FastForward(ctx, before.ID, after.ID)
		}
		if err != nil {
			return err
		}
		if !forward {
			return &DeniedError{Name: name, Op: NoForcePush, Detail: "not a fast-forward"}
		}
	}
	if after != nil && ops.Has(VerifySig) {
		signed, err := false, error(nil)
		if tx.change.Signed != nil {
			signed, err = tx.change.Signed(ctx, move(before, after))
		}
		if err != nil {
			return err
		}
		if !signed {
			return &DeniedError{Name: name, Op: VerifySig, Detail: "a new commit has no valid signature"}
		}
	}
	if after != nil && tx.change.Check != nil {
		return tx.change.Check(ctx, move(before, after))
	}
	return nil
}

// move describes a change of a ref, which was not there when before is nil.
func move(before, after *Ref) Move {
	m := Move{Name: after.Name, After: after.ID}
	if before != nil {
		m.Before = before.Target()
	}
	return m
}

// checkRoom refuses a new ref beyond the limit, or with a name that conflicts with another one.
func (tx *Tx) checkRoom(ctx context.Context, name string) error {
	if tx.count >= tx.store.options.RefsMax {
		return &LimitError{What: "refs in a repository", Max: tx.store.options.RefsMax}
	}
	if tx.ahead.isPending(name) && tx.head.count > 0 {
		if err := tx.ahead.survey(ctx, tx.reader, tx.repo); err != nil {
			return err
		}
	}
	for folder := range folders(name) {
		if _, err := tx.Lookup(ctx, folder); err == nil {
			return &NameConflictError{Name: name, Existing: folder}
		} else if !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	if tx.folders[name] > 0 {
		return &NameConflictError{Name: name, Existing: name + "/"}
	}
	if !tx.ahead.clear[name] {
		for ref, err := range tx.unchanged(ctx, name+"/") {
			if err != nil {
				return err
			}
			return &NameConflictError{Name: name, Existing: ref.Name}
		}
	}
	return tx.checkLong(ctx, name)
}

// unchanged walks the refs below prefix that the transaction leaves as they are.
func (tx *Tx) unchanged(ctx context.Context, prefix string) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		if tx.head.count == 0 {
			return
		}
		for ref, err := range scanRefs(ctx, tx.reader, tx.repo, prefix, prefixEnd(prefix)) {
			if _, changed := tx.changed[ref.Name]; !changed && !yield(ref, err) {
				return
			}
		}
	}
}

// checkLong bounds the names that [scanRefs] must put in order at once.
func (tx *Tx) checkLong(ctx context.Context, name string) error {
	if len(name) <= plainNameMax {
		return nil
	}
	start := name[:plainNameMax]
	if _, known := tx.long[start]; !known {
		tx.long[start] = 0
		for _, err := range tx.unchanged(ctx, start) {
			if err != nil {
				return err
			}
			tx.long[start]++
		}
	}
	if tx.long[start] >= longNamesMax {
		return &LimitError{What: fmt.Sprintf("refs that share their first %d bytes", plainNameMax), Max: longNamesMax}
	}
	return nil
}

// folders walks the folders of a stored name that might be refs themselves, those of three levels
// or more.
func folders(full string) iter.Seq[string] {
	return func(yield func(string) bool) {
		ns, name := SplitNamespace(full)
		base, levels := len(ns.Prefix()), 0
		for i := range len(name) {
			if name[i] != '/' {
				continue
			}
			if levels++; levels >= 3 && !yield(full[:base+i]) {
				return
			}
		}
	}
}
