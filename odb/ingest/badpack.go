package ingest

import (
	"errors"
	"fmt"

	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// ErrBadPack is matched by every error about what an incoming pack contains. A pack over a limit is
// [pack.ErrLimit] instead, and one that was cut off while it was read is whatever its reader said.
var ErrBadPack = errors.New("odb: bad pack")

// BadEntryError is an entry of a pack that cannot be read or resolved.
type BadEntryError struct {
	Offset int64 // of the entry in the pack
	Err    error
}

func (e *BadEntryError) Error() string { return fmt.Sprintf("entry at offset %d: %v", e.Offset, e.Err) }

// Is reports whether target is [ErrBadPack].
func (e *BadEntryError) Is(target error) bool { return target == ErrBadPack }

// Unwrap returns what is wrong with the entry.
func (e *BadEntryError) Unwrap() error { return e.Err }

// BadObjectError is an object that git's checks refuse.
type BadObjectError struct {
	Object object.ID
	Type   object.Type
	Err    error
}

func (e *BadObjectError) Error() string { return fmt.Sprintf("%s %s: %v", e.Type, e.Object, e.Err) }

// Is reports whether target is [ErrBadPack].
func (e *BadObjectError) Is(target error) bool { return target == ErrBadPack }

// Unwrap returns what the check found.
func (e *BadObjectError) Unwrap() error { return e.Err }

// MissingError is an object that an object of the pack names, and that is neither in the pack nor
// readable in the pool.
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

// WrongTypeError is an object that exists and is not of the type that an object of the pack expects
// of it.
type WrongTypeError struct {
	Object     object.ID
	Type, Want object.Type
}

func (e *WrongTypeError) Error() string {
	return fmt.Sprintf("object %s is a %s, and named as a %s", e.Object, e.Type, e.Want)
}

// Is reports whether target is [ErrBadPack].
func (e *WrongTypeError) Is(target error) bool { return target == ErrBadPack }

// UnresolvedError says that deltas of a pack have no base, in the pack or in the pool: the base is
// missing, or they are their own.
type UnresolvedError struct {
	Count int
	Base  object.ID // of the first of them
}

func (e *UnresolvedError) Error() string {
	return fmt.Sprintf("pack has %d unresolved deltas, one of them against the missing object %s", e.Count, e.Base)
}

// Is reports whether target is [ErrBadPack].
func (e *UnresolvedError) Is(target error) bool { return target == ErrBadPack }

// badEntry gives an error met at an entry its place in the pack, unless it is no fault of the pack.
func badEntry(offset int64, err error) error {
	if errors.Is(err, pack.ErrCorrupt) || errors.Is(err, delta.ErrCorrupt) {
		return &BadEntryError{Offset: offset, Err: err}
	}
	return err
}

// badObject gives an error of an object's checks the object's name, unless it is no fault of the
// object.
func badObject(id object.ID, t object.Type, err error) error {
	var check *object.CheckError
	if errors.As(err, &check) || errors.Is(err, object.ErrMalformed) || errors.Is(err, object.ErrNameTooLong) {
		return &BadObjectError{Object: id, Type: t, Err: err}
	}
	return err
}

// IsBadPack reports whether err is about what a pack contains, and not about a limit, the
// connection or the stores.
func IsBadPack(err error) bool {
	return errors.Is(err, ErrBadPack) || errors.Is(err, pack.ErrCorrupt) || errors.Is(err, object.ErrCollision)
}

// IsMissing reports whether err is a [MissingError].
func IsMissing(err error) bool {
	var missing *MissingError
	return errors.As(err, &missing)
}
