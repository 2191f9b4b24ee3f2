// Package object holds git's objects as plain values: object IDs, trees, commits, tags, their hash
// and their checks.
//
// Parsing is as lenient as git's, and lossless: for everything that [ParseCommit], [ParseTag] and
// [ParseTree] accept, the matching Append function writes the same bytes again. [Check] decides
// separately whether a server should accept an object. Start at [ID] and [Type]; readers of many
// trees want [TreeIter], walkers of history [CommitLinks].
//
// The encodings are those of git-fsck(1), git-commit-tree(1), git-mktag(1) and gitformat-pack(5).
// The package is pure: no files, no goroutines, and every function may be called concurrently.
package object

import (
	"errors"
	"fmt"
)

// ErrMalformed is matched by every error about bytes that are not an object of the stated type.
var ErrMalformed = errors.New("object: malformed object")

// ErrUnknownType is matched by the error of a type name or number that git does not have.
var ErrUnknownType = errors.New("object: unknown type")

// Type is the kind of an object, numbered as in a packfile.
type Type uint8

// The four types of git; the zero Type is none of them.
const (
	TypeCommit Type = 1
	TypeTree   Type = 2
	TypeBlob   Type = 3
	TypeTag    Type = 4
)

var typeNames = [...]string{TypeCommit: "commit", TypeTree: "tree", TypeBlob: "blob", TypeTag: "tag"}

// String returns git's name of t, as in the header that is hashed.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return typeNames[t]
}

// Valid reports whether t is one of the four types.
func (t Type) Valid() bool { return t >= TypeCommit && t <= TypeTag }

// ParseType returns the type that git calls name. Errors: [ErrUnknownType].
func ParseType(name string) (Type, error) {
	for t := TypeCommit; t <= TypeTag; t++ {
		if typeNames[t] == name {
			return t, nil
		}
	}
	return 0, fmt.Errorf("%w: %q", ErrUnknownType, name)
}

func malformed(t Type, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrMalformed, t, fmt.Sprintf(format, args...))
}
