package ingest

import (
	"errors"
	"fmt"

	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// ErrBadPack is matched by every error about the content of an incoming pack. A pack over a limit
// is [pack.ErrLimit] instead. A pack that was cut off while it was read is the error of its reader.
var ErrBadPack = errors.New("odb: bad pack")

// BadEntryError is an entry of a pack that cannot be read or resolved. Err is the reason.
type BadEntryError struct {
	Offset int64 // of the entry in the pack
	Err    error
}

func (e *BadEntryError) Error() string { return fmt.Sprintf("entry at offset %d: %v", e.Offset, e.Err) }

// Is reports whether target is [ErrBadPack].
func (e *BadEntryError) Is(target error) bool { return target == ErrBadPack }

// Unwrap returns the reason.
func (e *BadEntryError) Unwrap() error { return e.Err }

// BadObjectError is an object that git's checks refuse. Err is the failed check.
type BadObjectError struct {
	Object object.ID
	Type   object.Type
	Err    error
}

func (e *BadObjectError) Error() string { return fmt.Sprintf("%s %s: %v", e.Type, e.Object, e.Err) }

// Is reports whether target is [ErrBadPack].
func (e *BadObjectError) Is(target error) bool { return target == ErrBadPack }

// Unwrap returns the failed check.
func (e *BadObjectError) Unwrap() error { return e.Err }

// MissingError is an object that the object From of the pack names, and that is neither in the pack
// nor readable in the pool.
type MissingError struct {
	Object object.ID
	From   object.ID
	// Shallow says that From is a commit at which the sender's history is shallow.
	Shallow bool
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("object %s, which %s names, is missing", e.Object, e.From)
}

// Is reports whether target is [ErrBadPack].
func (e *MissingError) Is(target error) bool { return target == ErrBadPack }

// WrongTypeError is an object whose Type is not the type Want that an object of the pack expects.
type WrongTypeError struct {
	Object     object.ID
	Type, Want object.Type
}

func (e *WrongTypeError) Error() string {
	return fmt.Sprintf("object %s is a %s, and named as a %s", e.Object, e.Type, e.Want)
}

// Is reports whether target is [ErrBadPack].
func (e *WrongTypeError) Is(target error) bool { return target == ErrBadPack }

// UnresolvedError says that Count deltas of a pack have no base, in the pack or in the pool: the
// base is missing, or deltas form a cycle.
type UnresolvedError struct {
	Count int
	Base  object.ID // of the first of them
}

func (e *UnresolvedError) Error() string {
	return fmt.Sprintf("pack has %d unresolved deltas, one of them against the missing object %s", e.Count, e.Base)
}

// Is reports whether target is [ErrBadPack].
func (e *UnresolvedError) Is(target error) bool { return target == ErrBadPack }

// badEntry adds the place of an entry to an error, unless the error is no fault of the pack.
func badEntry(offset int64, err error) error {
	if errors.Is(err, pack.ErrCorrupt) || errors.Is(err, delta.ErrCorrupt) {
		return &BadEntryError{Offset: offset, Err: err}
	}
	return err
}

// badObject adds the object's name to an error of its checks, unless the error is no fault of the
// object.
func badObject(id object.ID, t object.Type, err error) error {
	var check *object.CheckError
	if errors.As(err, &check) || errors.Is(err, object.ErrMalformed) || errors.Is(err, object.ErrNameTooLong) {
		return &BadObjectError{Object: id, Type: t, Err: err}
	}
	return err
}

// IsBadPack reports whether err is about the content of a pack, and not about a limit, the
// connection or the stores.
func IsBadPack(err error) bool {
	return errors.Is(err, ErrBadPack) || errors.Is(err, pack.ErrCorrupt) || errors.Is(err, object.ErrCollision)
}

// IsMissing reports whether err is a [MissingError].
func IsMissing(err error) bool {
	var missing *MissingError
	return errors.As(err, &missing)
}
