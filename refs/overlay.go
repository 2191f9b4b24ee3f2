package refs

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"packhorse/odb/kv"
)

// overlay holds refs that differ from the stored ones; nil stands for "absent".
type overlay map[string]*Ref

// over walks rows with the overlay's refs of start <= name < end in their places.
func (o overlay) over(rows iter.Seq2[Ref, error], start, end string) iter.Seq2[Ref, error] {
	if len(o) == 0 {
		return rows
	}
	return func(yield func(Ref, error) bool) {
		names := slices.Sorted(maps.Keys(o))
		// before hands on the overlay's refs that are below name, and all that are left when there is
		// none.
		before := func(name string) bool {
			for len(names) > 0 && (name == "" || names[0] < name) {
				ref := o[names[0]]
				inside := names[0] >= start && (end == "" || names[0] < end)
				names = names[1:]
				if ref != nil && inside && !yield(*ref, nil) {
					return false
				}
			}
			return true
		}
		for ref, err := range rows {
			if err != nil {
				yield(Ref{}, err)
				return
			}
			if !before(ref.Name) {
				return
			}
			if _, replaced := o[ref.Name]; !replaced && !yield(ref, nil) {
				return
			}
		}
		before("")
	}
}

// differencesMax bounds the refs of an overlay that differences returns.
const differencesMax = 100_000

// errLost says that two states are not of one history, or that the store has lost one of them.
var errLost = fmt.Errorf("%w: a state was lost", ErrBusy)

// differences returns the changes that turn a repository's refs as of one version into those as of
// another, whichever is later.
//
// Errors: [ErrTrimmed] when the journal does not reach back far enough; [ErrBusy] when there are
// more than differencesMax, or when the transactions of the journal do not lead from one version to
// the other.
func differences(ctx context.Context, reader kv.Reader, repo RepoID, from, to Version) (overlay, error) {
	changed := make(overlay)
	apart := from.token ^ to.token
	first, last := min(from.Sequence, to.Sequence), max(from.Sequence, to.Sequence)
	for entry, err := range journal(ctx, reader, repo, first, last) {
		if err != nil {
			return nil, err
		}
		if entry.Index == 0 {
			apart ^= entry.mark
		}
		_, seen := changed[entry.Ref]
		switch {
		case entry.Ref == "":
		case from.Sequence < to.Sequence:
			changed[entry.Ref] = entry.after
		case !seen:
			changed[entry.Ref] = entry.before
		}
		if len(changed) > differencesMax {
			return nil, fmt.Errorf("refs of %s at %d: %w", repo, to.Sequence, ErrBusy)
		}
	}
	if apart != 0 {
		return nil, fmt.Errorf("refs of %s at %d: %w", repo, to.Sequence, errLost)
	}
	return changed, nil
}
