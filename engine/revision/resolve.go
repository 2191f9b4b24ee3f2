package revision

import (
	"context"
	"fmt"
	"strings"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// PrefixDigitsMin is the smallest number of digits of a prefix of an object ID.
const PrefixDigitsMin = 7

// Refs is where the refs of one namespace are looked up.
type Refs interface {
	// Lookup returns the object that a ref of a full name leads to, with or without tag objects
	// between, and whether there is such a ref.
	Lookup(ctx context.Context, name string) (id object.ID, found bool, err error)
	// Default returns the full name of the default branch, which need not exist.
	Default(ctx context.Context) (name string, err error)
	// At calls do with the refs as they were at a moment.
	At(ctx context.Context, moment Moment, do func(Refs) error) error
}

// Found is the commit of an expression.
type Found struct {
	Commit object.ID
	// Ref is the full name of the ref that the base is, or "" for an object ID.
	Ref string
}

// Resolve finds the commit of an expression. v checks whether IDs in the expression are readable;
// jumps may be nil. It computes in a turn of the request ([fair.Do]) as far as it walks.
//
// Errors: [ErrInvalid] and [ErrNotFound], both as [Error]; [ErrTagChain]; those of reading.
func Resolve(ctx context.Context, text string, names Refs, v *odb.View, jumps *Jumps) (Found, error) {
	e, err := Parse(text)
	if err != nil {
		return Found{}, err
	}
	var found Found
	if e.moment == nil {
		found, err = e.resolveBase(ctx, names, v)
	} else {
		err = names.At(ctx, *e.moment, func(then Refs) (err error) {
			found, err = e.resolveBase(ctx, then, v)
			return err
		})
	}
	if IsUnknown(err) {
		err = e.missingBase()
	}
	if err != nil || !e.HasSteps() {
		return found, err
	}
	err = fair.Do(ctx, func(ctx context.Context) error {
		w := walk{view: v.Linked(), jumps: jumps, at: found.Commit}
		err := w.follow(ctx, &e)
		found.Commit = w.at
		return err
	})
	return found, err
}

// resolveBase finds the commit of the base, by the order of gitrevisions(7), except that a branch
// comes before a tag.
func (e *Expression) resolveBase(ctx context.Context, names Refs, v *odb.View) (found Found, err error) {
	if id, err := object.ParseID(strings.ToLower(e.base)); err == nil {
		found.Commit, err = Peel(ctx, v, id)
		return found, err
	}
	candidates, err := e.candidates(ctx, names)
	if err != nil {
		return found, err
	}
	for _, name := range candidates {
		id, ok, err := names.Lookup(ctx, name)
		if err != nil {
			return found, err
		}
		if ok {
			found.Ref = name
			found.Commit, err = Peel(ctx, v.Linked(), id)
			return found, err
		}
	}
	if e.moment != nil || len(e.base) < PrefixDigitsMin || !IsHex(e.base) {
		return found, e.missingBase()
	}
	found.Commit, err = e.resolvePrefix(ctx, v)
	return found, err
}

// candidates are the full names of the refs that the base may be, in the order in which they are
// tried.
func (e *Expression) candidates(ctx context.Context, names Refs) ([]string, error) {
	if e.base == "" || e.base == "HEAD" || e.base == "@" {
		name, err := names.Default(ctx)
		return []string{name}, err
	}
	list := []string{"refs/heads/" + e.base, "refs/tags/" + e.base}
	if strings.HasPrefix(e.base, "refs/") {
		list = append([]string{e.base}, list...)
	}
	return list, nil
}

// resolvePrefix finds the one commit, or tag object that leads to a commit, whose ID begins with
// the base: git's disambiguation called committish.
func (e *Expression) resolvePrefix(ctx context.Context, v *odb.View) (object.ID, error) {
	ids, err := v.Resolve(ctx, strings.ToLower(e.base))
	if err != nil {
		return object.ZeroID, fmt.Errorf("resolve %q: %w", e.base, err)
	}
	var commit object.ID
	count, what := 0, "commits"
	for _, id := range ids {
		target, err := Peel(ctx, v, id)
		if IsUnknown(err) {
			continue
		}
		if err != nil {
			return object.ZeroID, err
		}
		if commit = target; target != id {
			what = "commits and tags"
		}
		count++
	}
	switch count {
	case 0:
		return object.ZeroID, e.missingBase()
	case 1:
		return commit, nil
	}
	reason := fmt.Sprintf(" is ambiguous: %d %s begin with it", count, what)
	if e.HasSteps() {
		reason = fmt.Sprintf(": %q%s", e.base, reason)
	}
	return object.ZeroID, &Error{Expression: e.String(), kind: ErrInvalid, reason: reason}
}

// IsHex reports whether text has hexadecimal digits only, of either case.
func IsHex(text string) bool { return strings.Trim(text, "0123456789abcdefABCDEF") == "" }
