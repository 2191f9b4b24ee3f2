package odb

import (
	"errors"
	"fmt"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Errors that a caller decides on.
var (
	// ErrNotFound says that an object is not in the pool, or not readable through it; callers cannot
	// distinguish the two.
	ErrNotFound = errors.New("odb: object not found")
	// ErrNoPool says that there is no pool of that ID.
	ErrNoPool = errors.New("odb: pool not found")
	// ErrCorrupt says that stored bytes failed a check.
	ErrCorrupt = segment.ErrCorrupt
	// ErrTooLarge says that an object exceeds a limit, or the memory that the call may use.
	ErrTooLarge = segment.ErrTooLarge
	// ErrGone says that a layer of a view was replaced, and then removed by another server's
	// maintenance. A new view reads the same objects from other layers.
	ErrGone = segment.ErrGone
	// ErrNotHeld says that files may have been deleted that were to stay; see [Store.HoldFiles].
	ErrNotHeld = errors.New("odb: files are no longer held")
	// ErrPruned says that objects were pruned from the pool since the connectivity of a quarantine was
	// checked; see [Quarantine.Refresh].
	ErrPruned = errors.New("odb: objects were pruned from the pool meanwhile")
	// ErrManyLayers says that a pool's manifest cannot take another layer before maintenance has
	// merged some.
	ErrManyLayers = errors.New("odb: the pool has too many layers")
	// ErrClosed says that a view or a quarantine was used after it was closed.
	ErrClosed = errors.New("odb: closed")
)

// CorruptError is [ErrCorrupt] with its evidence.
type CorruptError = segment.CorruptError

// NotFoundError is [ErrNotFound] with the object that is missing.
type NotFoundError struct{ Object object.ID }

func (e *NotFoundError) Error() string { return "odb: object " + e.Object.String() + " not found" }

// Is reports whether target is [ErrNotFound].
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// TypeError is [ErrCorrupt]: what names an object takes it for one of another type. A quarantine
// refuses such names, so the store is damaged.
type TypeError struct {
	Object     object.ID
	Type, Want object.Type
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("odb: object %s is a %s, and named as a %s", e.Object, e.Type, e.Want)
}

// Is reports whether target is [ErrCorrupt].
func (e *TypeError) Is(target error) bool { return target == ErrCorrupt }
