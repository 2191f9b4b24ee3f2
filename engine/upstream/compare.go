package upstream

import (
	"context"
	"strings"

	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// action is what brings a ref to the same value on both sides.
type action uint8

const (
	nothing action = iota
	agree          // it has it already
	pull           // the far side's value comes here
	push           // ours goes there
	leave          // neither may: the sync reports why
)

// sides is a ref as it is here and there, and as both had it last. The zero id is none.
type sides struct {
	local, far, seen object.ID
	// held is the value that an import gave it here, nil if none has.
	held *object.ID
}

// decision is the action for a ref, or the reason why there is none.
type decision struct {
	action action
	why    string
}

// Why a ref is left as it is.
const (
	whyDiverged = "has diverged from the upstream, and is left as it is on both sides"
	whyRewound  = "has been rewound here, and the upstream is never forced"
	whyForced   = "has been rewritten at the upstream, and is left as it is here"
	whyTag      = "is another tag at the upstream, and is left as it is on both sides"
	whyDefault  = "has gone at the upstream, and stays here as the default branch"
)

// decide compares the sides of one ref.
//
// A side that did not change since both were the same takes the value of the other, if that goes
// forward. When both changed, the one that contains the other wins, and new work wins over a
// deletion. view shows the objects of ours.
func (s *sides) decide(ctx context.Context, view *odb.View, name string, isDefault bool) (decision, error) {
	switch {
	case s.local == s.far:
		return decision{action: agree}, nil
	case s.held != nil && *s.held == s.local && s.far == s.seen:
		return decision{}, nil
	case s.far.IsZero() && s.local == s.seen && isDefault:
		return decision{leave, whyDefault}, nil
	case s.far.IsZero() && s.local == s.seen:
		return decision{action: pull}, nil
	case s.far.IsZero():
		return decision{action: push}, nil
	case s.local.IsZero() && s.far == s.seen:
		return decision{action: push}, nil
	case s.local.IsZero():
		return decision{action: pull}, nil
	case strings.HasPrefix(name, tagPrefix):
		return decision{leave, whyTag}, nil
	}
	return s.compare(ctx, view)
}

// compare decides about a branch that is on both sides, at different commits.
func (s *sides) compare(ctx context.Context, view *odb.View) (decision, error) {
	known, err := view.Has(ctx, s.far)
	if err != nil {
		return decision{}, err
	}
	if !known && s.far == s.seen {
		return decision{leave, whyRewound}, nil // so long ago that the old commits were pruned
	}
	if !known {
		// The remote value is not in this store, so it is not an ancestor of ours. Whether it is a
		// descendant shows after the fetch.
		return decision{action: pull}, nil
	}
	ahead, err := isAncestor(ctx, view, s.far, s.local)
	if err != nil {
		return decision{}, err
	}
	behind, err := isAncestor(ctx, view, s.local, s.far)
	switch {
	case err != nil:
		return decision{}, err
	case ahead && s.local != s.seen:
		return decision{action: push}, nil
	case behind && s.far != s.seen:
		return decision{action: pull}, nil
	case s.local == s.seen:
		return decision{leave, whyForced}, nil
	case s.far == s.seen:
		return decision{leave, whyRewound}, nil
	default:
		return decision{leave, whyDiverged}, nil
	}
}

// isAncestor is false for objects that are not commits.
func isAncestor(ctx context.Context, view *odb.View, ancestor, descendant object.ID) (bool, error) {
	for _, id := range []object.ID{ancestor, descendant} {
		info, err := view.Stat(ctx, id)
		if err != nil {
			return false, err
		}
		if info.Type != object.TypeCommit {
			return false, nil
		}
	}
	return revwalk.IsAncestor(ctx, view, ancestor, descendant)
}

// Refs of these prefixes are synced, and no others.
const (
	branchPrefix = "refs/heads/"
	tagPrefix    = "refs/tags/"
)

// Covers reports whether the ref of a stored name is synced.
func Covers(name string) bool {
	return strings.HasPrefix(name, branchPrefix) || strings.HasPrefix(name, tagPrefix)
}
