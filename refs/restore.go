package refs

import (
	"context"
	"errors"
	"iter"
	"slices"
)

// Since walks the journal of the transactions after a sequence, up to the state on which the
// transaction builds. Transactions that changed no ref have an entry without one.
//
// Errors: a [FutureError] for a sequence that is to come; [ErrTrimmed].
func (tx *Tx) Since(ctx context.Context, sequence uint64) iter.Seq2[Entry, error] {
	if sequence > tx.head.sequence {
		return func(yield func(Entry, error) bool) {
			yield(Entry{}, &FutureError{Sequence: sequence, Last: tx.head.sequence})
		}
	}
	return journal(ctx, tx.reader, tx.repo, sequence, tx.head.sequence)
}

// Transaction returns the changes of refs of one transaction. Errors: those of [Tx.Since].
func (tx *Tx) Transaction(ctx context.Context, sequence uint64) (entries []Entry, err error) {
	if sequence > tx.head.sequence {
		return nil, &FutureError{Sequence: sequence, Last: tx.head.sequence}
	}
	for entry, err := range tx.Since(ctx, max(sequence, 1)-1) {
		if err != nil {
			return nil, err
		}
		if entry.Sequence > sequence {
			break
		}
		if entry.Ref != "" {
			entries = append(entries, entry)
		}
	}
	return entries, nil
}

// Restore gives the ref of an entry the state that it had before the entry: it deletes the ref, or
// sets it as [Tx.Set] does. The caller has made sure that the object exists, with everything
// reachable from it.
//
// Errors: those of [Tx.Set].
func (tx *Tx) Restore(ctx context.Context, entry *Entry) error {
	if entry.before == nil {
		err := tx.Delete(ctx, entry.Ref, nil)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	}
	return tx.Set(ctx, entry.Ref, nil, entry.before.ID, entry.before.Peeled)
}

// Patterns select refs by their full names, in the language of policies: a name, or its begin and a
// *, where a pattern that does not begin with refs/ is about branches. No pattern selects all refs.
type Patterns []rule

// ParsePatterns reads patterns. Errors: a [PolicyError] for the first that is none.
func ParsePatterns(texts []string) (Patterns, error) {
	patterns := make(Patterns, 0, len(texts))
	for i, text := range texts {
		pattern, err := parsePattern(text)
		if err != nil {
			return nil, &PolicyError{Index: i, Reason: err.Error()}
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}

// Mark sets matched, which has a place for each pattern, for those that select the ref of a full
// name, and reports whether the ref is selected.
func (p Patterns) Mark(name string, matched []bool) bool {
	selected := len(p) == 0
	for i, r := range p {
		if r.matches(name) {
			matched[i], selected = true, true
		}
	}
	return selected
}

// Match reports whether the ref of a full name is selected.
func (p Patterns) Match(name string) bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(r rule) bool { return r.matches(name) })
}
