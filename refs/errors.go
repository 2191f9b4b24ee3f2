package refs

import (
	"errors"
	"fmt"
	"time"

	"packhorse/pack/object"
)

var (
	// ErrNotFound means that a ref does not exist.
	ErrNotFound = errors.New("refs: ref not found")
	// ErrRepositoryNotFound means that a repository does not exist, or not any more.
	ErrRepositoryNotFound = errors.New("refs: repository not found")
	// ErrStale means that a ref is not where the caller expected it; the error is a [StaleError].
	ErrStale = errors.New("refs: ref has moved")
	// ErrNameConflict means that a name would be both a ref and a folder of refs; the error is a
	// [NameConflictError].
	ErrNameConflict = errors.New("refs: name conflicts with another ref")
	// ErrInvalidName means that a name breaks a rule; the error is a [NameError].
	ErrInvalidName = errors.New("refs: invalid name")
	// ErrInvalidRepoID means that a string is no repository ID.
	ErrInvalidRepoID = errors.New("refs: invalid repository ID")
	// ErrDenied means that the policy of the caller's token forbids a change; the error is a
	// [DeniedError].
	ErrDenied = errors.New("refs: denied by policy")
	// ErrInvalidPolicy means that a token's policy cannot be understood; the error is a [PolicyError].
	ErrInvalidPolicy = errors.New("refs: invalid policy")
	// ErrLimit means that a transaction exceeds a limit; the error is a [LimitError].
	ErrLimit = errors.New("refs: limit exceeded")
	// ErrBusy means that others committed first, each time the transaction was tried. The caller may
	// try again.
	ErrBusy = errors.New("refs: repository is busy")
	// ErrAlone is returned by the prepare function of [Store.Update] to say that the transaction
	// cannot build on others of its batch; see [Combiner]. It is then the first of another.
	ErrAlone = errors.New("refs: the transaction cannot build on others of its batch")
	// ErrReceiptMismatch means that an idempotency key was used before, for another request.
	ErrReceiptMismatch = errors.New("refs: idempotency key was used for another request")
	// ErrInvalidReceiptKey means that an idempotency key is empty, too long, or not visible ASCII.
	ErrInvalidReceiptKey = errors.New("refs: invalid idempotency key")
	// ErrTrimmed means that the journal no longer reaches back as far as asked; the error is a
	// [TrimmedError].
	ErrTrimmed = errors.New("refs: journal has been trimmed")
	// ErrBeforeCreation means that a repository did not exist yet at a moment; the error is a
	// [BeforeCreationError].
	ErrBeforeCreation = errors.New("refs: the repository did not exist yet")
	// ErrFuture means that a repository has not reached a sequence; the error is a [FutureError].
	ErrFuture = errors.New("refs: the sequence is to come")
	// ErrInvalidJournalCursor means that a text is no position in a journal.
	ErrInvalidJournalCursor = errors.New("refs: invalid position in a journal")
	// ErrInvalidFeedCursor means that a text is no position in a feed.
	ErrInvalidFeedCursor = errors.New("refs: invalid position in a feed")
	// ErrFeedGone means that the feed of an organization does not go on from a position; the error is
	// a [FeedGoneError].
	ErrFeedGone = errors.New("refs: events are gone")
	// ErrCorrupt means that a stored row failed a check.
	ErrCorrupt = errors.New("refs: stored data is damaged")
	// ErrUnchanged is returned by the prepare function of [Store.Update] to end the transaction
	// without a change and without an error.
	ErrUnchanged = errors.New("refs: nothing to change")
)

// StaleError has the actual and the expected value of a ref; the zero ID stands for "absent". It
// matches [ErrStale].
type StaleError struct {
	Name             string
	Expected, Actual object.ID
}

// Error names the ref and both values.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: %s is at %s, expected %s", ErrStale, e.Name, describe(e.Actual), describe(e.Expected))
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

func describe(id object.ID) string {
	if id.IsZero() {
		return "nothing"
	}
	return id.String()
}

// NameConflictError names the existing ref that conflicts with a new name. It matches
// [ErrNameConflict].
type NameConflictError struct {
	Name, Existing string
}

// Error names both refs.
func (e *NameConflictError) Error() string {
	return fmt.Sprintf("refs: %s cannot exist beside %s", e.Name, e.Existing)
}

// Is reports whether target is ErrNameConflict.
func (e *NameConflictError) Is(target error) bool { return target == ErrNameConflict }

// NameError names the rule that a name breaks. It matches [ErrInvalidName].
type NameError struct {
	Name, Reason string
}

// Error names the start of the name and the rule.
func (e *NameError) Error() string {
	return fmt.Sprintf("%v %.200q: %s", ErrInvalidName, e.Name, e.Reason)
}

// Is reports whether target is ErrInvalidName.
func (e *NameError) Is(target error) bool { return target == ErrInvalidName }

// DeniedError names the op of a policy that forbids the change of a ref. It matches [ErrDenied].
type DeniedError struct {
	Name   string
	Op     Op
	Detail string // why the op is not satisfied; may be empty
}

// Error says "denied by policy" and names the op.
func (e *DeniedError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("denied by policy: %.40s on %s", e.Op, e.Name)
	}
	return fmt.Sprintf("denied by policy: %.40s on %s: %s", e.Op, e.Name, e.Detail)
}

// Is reports whether target is ErrDenied.
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

// PolicyError describes the fault in a token's policy. It matches [ErrInvalidPolicy].
type PolicyError struct {
	Index  int // the rule, counted from 0
	Reason string
}

// Error names the rule.
func (e *PolicyError) Error() string {
	return fmt.Sprintf("%v: rule %d: %s", ErrInvalidPolicy, e.Index, e.Reason)
}

// Is reports whether target is ErrInvalidPolicy.
func (e *PolicyError) Is(target error) bool { return target == ErrInvalidPolicy }

// LimitError names the limit that a transaction exceeds. It matches [ErrLimit].
type LimitError struct {
	What string
	Max  int
}

// Error names the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %s, at most %d", ErrLimit, e.What, e.Max)
}

// Is reports whether target is ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// TrimmedError has the first sequence that the journal still holds or, when refs of the past were
// asked for, the oldest one that can be read. It matches [ErrTrimmed].
type TrimmedError struct {
	Oldest uint64
	// At is the oldest time that can be asked for; zero where no time was.
	At time.Time
}

// Error names the oldest sequence.
func (e *TrimmedError) Error() string {
	if !e.At.IsZero() {
		return fmt.Sprintf("%v: the oldest sequence is %d, the oldest time %s", ErrTrimmed, e.Oldest,
			e.At.UTC().Format(time.RFC3339Nano))
	}
	return fmt.Sprintf("%v: the oldest sequence is %d", ErrTrimmed, e.Oldest)
}

// Is reports whether target is ErrTrimmed.
func (e *TrimmedError) Is(target error) bool { return target == ErrTrimmed }

// BeforeCreationError has the time at which the repository was created. It matches
// [ErrBeforeCreation].
type BeforeCreationError struct {
	Created time.Time
}

// Error names the time.
func (e *BeforeCreationError) Error() string {
	return fmt.Sprintf("%v: it was created at %s", ErrBeforeCreation, e.Created.UTC().Format(time.RFC3339Nano))
}

// Is reports whether target is ErrBeforeCreation.
func (e *BeforeCreationError) Is(target error) bool { return target == ErrBeforeCreation }

// FutureError has the sequence that was asked for, and the last one that there is. It matches
// [ErrFuture].
type FutureError struct {
	Sequence, Last uint64
}

// Error names both.
func (e *FutureError) Error() string {
	return fmt.Sprintf("%v: %d was asked for, the last one is %d", ErrFuture, e.Sequence, e.Last)
}

// Is reports whether target is ErrFuture.
func (e *FutureError) Is(target error) bool { return target == ErrFuture }

// FeedGoneError has the oldest position that the feed goes on from. It matches [ErrFeedGone].
type FeedGoneError struct {
	Oldest FeedCursor
}

// Error says why and names the oldest position.
func (e *FeedGoneError) Error() string {
	return fmt.Sprintf("%v: the events after this cursor have been trimmed, or the cursor is of another store or "+
		"of a time before a restore; the oldest cursor is %q", ErrFeedGone, e.Oldest)
}

// Is reports whether target is ErrFeedGone.
func (e *FeedGoneError) Is(target error) bool { return target == ErrFeedGone }
