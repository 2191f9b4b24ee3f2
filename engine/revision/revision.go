// Package revision finds the commits that revisions name, as gitrevisions(7) describes them.
//
// Start at [Resolve]. The map, by file:
//
//	parse    the grammar: a base and steps, and what is refused
//	moment   moments: positions in the journal, and times
//	resolve  the base: refs, object IDs and prefixes of them
//	peel     tag objects, followed to what they lead to
//	steps    ancestors and parents, on the commit graph; remembered jumps
//
// Taken are a branch, a tag, a full ref, an object ID, a unique prefix of one, HEAD and @, each
// followed by any number of ~, ~N, ^, ^N, ^{} and ^{commit}. Behind the name of a ref, or alone for
// the default branch, @{...} names a moment. What means several commits, a path, or
// something that a server does not keep is refused by name. A result is always one commit. The
// package knows namespaces, repositories and hosts only as what looks up refs and reads objects.
package revision

import (
	"cmp"
	"errors"
	"fmt"
)

// Facts that a caller decides on.
var (
	// ErrInvalid says that an expression is refused whatever the repository holds, or that a prefix is
	// ambiguous.
	ErrInvalid = errors.New("revision: not taken")
	// ErrNotFound says that a part of an expression does not exist, or may not be read.
	ErrNotFound = errors.New("revision: not found")
	// ErrTagChain says that an object is behind more tag objects than are followed.
	ErrTagChain = errors.New("revision: tag objects that lead from one to the next: more than the limit of 100")
)

// Error is a refusal with its words. It matches [ErrInvalid] or [ErrNotFound].
type Error struct {
	// Expression is the whole text. Base is the name that its steps begin at where that is what does
	// not exist, or else "".
	Expression, Base string
	kind             error
	reason           string
}

// Error quotes the expression, at most 200 bytes of it, and says what is wrong.
func (e *Error) Error() string { return fmt.Sprintf("%.200q%s", e.Expression, e.reason) }

// Is reports whether target is the kind of e.
func (e *Error) Is(target error) bool { return target == e.kind }

// refused says that a text is no expression that is taken.
func refused(text, reason string) error {
	return &Error{Expression: text, kind: ErrInvalid, reason: ": " + reason}
}

// missingBase says that the base of an expression does not exist.
func (e *Expression) missingBase() error {
	reason := " not found"
	switch {
	case e.moment != nil:
		reason := fmt.Sprintf(": %.200q not found at that moment", cmp.Or(e.base, "HEAD"))
		return &Error{Expression: e.String(), kind: ErrNotFound, reason: reason}
	case e.HasSteps():
		reason = fmt.Sprintf(": %.200q not found", e.base)
	}
	return &Error{Expression: e.String(), Base: e.base, kind: ErrNotFound, reason: reason}
}

// missingStep says that a commit has not enough of something for the step at an index.
func (e *Expression) missingStep(index, count int, thing string) error {
	has := fmt.Sprintf("%d %ss", count, thing)
	switch count {
	case 0:
		has = "no " + thing
	case 1:
		has = "1 " + thing
	}
	return &Error{
		Expression: e.String(), kind: ErrNotFound,
		reason: fmt.Sprintf(" not found: %.200q has %s", e.prefix(index), has),
	}
}
