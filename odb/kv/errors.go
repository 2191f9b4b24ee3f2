package kv

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound means that no value is stored under a key.
	ErrNotFound = errors.New("kv: key not found")
	// ErrConflict means that a precondition of a batch does not hold; the error is a [ConflictError].
	ErrConflict = errors.New("kv: precondition does not hold")
	// ErrTooLarge means that a key, a value or a batch exceeds a limit; the error is a [LimitError].
	ErrTooLarge = errors.New("kv: limit exceeded")
	// ErrEmptyKey means that a batch names the empty key, which no store holds.
	ErrEmptyKey = errors.New("kv: empty key")
	// ErrSnapshotExpired means that a snapshot was read after its time.
	ErrSnapshotExpired = errors.New("kv: snapshot has expired")
	// ErrClosed means that a store or a snapshot was used after Close.
	ErrClosed = errors.New("kv: closed")
	// ErrCorrupt means that stored bytes failed a check.
	ErrCorrupt = errors.New("kv: stored data is damaged")
	// ErrLocked means that another process, or another store of this one, has the directory open.
	ErrLocked = errors.New("kv: directory is in use")
	// ErrFailed means that the store could not sync its log. All further calls fail: visible writes
	// may be lost, and only a restart can determine which.
	ErrFailed = errors.New("kv: store has failed")
	// ErrUnavailable means that the store cannot be reached at present. Nothing was changed, and a
	// later call may succeed.
	ErrUnavailable = errors.New("kv: store is unavailable")
	// ErrUnknown means that the store went away while it applied a batch, and did not come back in
	// time to say whether it had. Whoever reads later sees all of the batch or none of it.
	ErrUnknown = errors.New("kv: outcome of the batch is unknown")
)

// ConflictError names the precondition of a batch that did not hold. It matches [ErrConflict].
type ConflictError struct {
	Key []byte
}

// Error names the key in hexadecimal.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: key %x", ErrConflict, e.Key)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// LimitError names the limit of the contract that was exceeded. It matches [ErrTooLarge].
type LimitError struct {
	// What is "key size", "value size", "batch size" or "batch count".
	What string
	// Got is the requested amount, as far as it was counted.
	Got int
	// Max is the limit.
	Max int
}

// Error names the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %s %d, at most %d", ErrTooLarge, e.What, e.Got, e.Max)
}

// Is reports whether target is ErrTooLarge.
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }
