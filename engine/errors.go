package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/pack/object"
	"packhorse/refs"
)

// Facts that a caller decides on.
var (
	// ErrNotFound says that a repository, ref, commit or path does not exist, or may not be read.
	ErrNotFound = errors.New("engine: not found")
	// ErrExists says that the item to create exists already.
	ErrExists = errors.New("engine: exists already")
	// ErrDeleted says that a repository has been deleted already.
	ErrDeleted = errors.New("engine: deleted already")
	// ErrPurged says that a repository has been deleted for good.
	ErrPurged = errors.New("engine: deleted for good")
	// ErrMoved says that refs have moved since the transaction that is to be taken back.
	ErrMoved = errors.New("engine: refs have moved since")
	// ErrDefaultBranch says that the default branch cannot be deleted, because that would leave a
	// clone without a branch to check out.
	ErrDefaultBranch = errors.New("engine: the default branch cannot be deleted")
	// ErrInvalid says that the request is invalid for any repository.
	ErrInvalid = errors.New("engine: invalid request")
	// ErrPast says that a moment lies before the history that can be read.
	ErrPast = errors.New("engine: the history of that moment is not kept any more")
	// ErrReadOnly says that a repository at a moment of the past was to be changed.
	ErrReadOnly = errors.New("engine: a moment of the past cannot be changed")
	// ErrStale says that a tip is not the expected one.
	ErrStale = errors.New("engine: the tip is not the expected one")
	// ErrConflict says that a patch does not apply to its target.
	ErrConflict = errors.New("engine: the patch does not apply")
	// ErrNotForward says that an update of a branch is not a fast-forward.
	ErrNotForward = errors.New("engine: not a fast-forward")
	// ErrEmptyPick says that a commit that is to be picked would change nothing.
	ErrEmptyPick = errors.New("engine: the commit would change nothing")
	// ErrUnreadable says that stored objects that a merge needs are damaged or missing.
	ErrUnreadable = errors.New("engine: stored objects cannot be read")
	// ErrNoChange says that a requested change would change nothing.
	ErrNoChange = errors.New("engine: nothing to change")
	// ErrQuota says that an organization has reached its limit of repositories.
	ErrQuota = errors.New("engine: no more repositories")
	// ErrTooLarge says that a limit of the host was exceeded.
	ErrTooLarge = errors.New("engine: over a limit")
	// ErrManyCommits says that the files of a listing were changed last by more commits than one
	// answer lists.
	ErrManyCommits = errors.New("engine: too many distinct last commits")
	// ErrNoApp says that the organization has no app for a repository on GitHub.
	ErrNoApp = errors.New("engine: no GitHub app")
	// ErrNoUpstream says that a repository has no upstream to sync with.
	ErrNoUpstream = errors.New("engine: no upstream")
	// ErrDetachTimeout says that a repository could not be detached because a running sync did not
	// end in time.
	ErrDetachTimeout = errors.New("engine: a sync did not end")
	// ErrImporting says that the first import of a repository has not ended.
	ErrImporting = errors.New("engine: the first import has not ended")
	// ErrImportWait says that a request ended while it waited for the first import.
	ErrImportWait = errors.New("engine: cancelled while waiting for the first import")
	// ErrCorrupt says that a stored row of this package failed a check.
	ErrCorrupt = errors.New("engine: stored data is damaged")
)

// Facts that say which item an [ErrNotFound] is about. They match it, too.
var (
	// ErrRepositoryNotFound says that a repository does not exist, or was deleted.
	ErrRepositoryNotFound = fmt.Errorf("%w: repository", ErrNotFound)
	// ErrRefNotFound says that a branch, a tag or another ref does not exist.
	ErrRefNotFound = fmt.Errorf("%w: ref", ErrNotFound)
	// ErrCommitNotFound says that an ID or a revision leads to no commit that may be read.
	ErrCommitNotFound = fmt.Errorf("%w: commit", ErrNotFound)
	// ErrObjectNotFound says that another object does not exist, or may not be read.
	ErrObjectNotFound = fmt.Errorf("%w: object", ErrNotFound)
	// ErrPathNotFound says that a tree has no such path.
	ErrPathNotFound = fmt.Errorf("%w: path", ErrNotFound)
	// ErrNoteNotFound says that a commit has no note.
	ErrNoteNotFound = fmt.Errorf("%w: note", ErrNotFound)
	// ErrCredentialNotFound says that there is no such stored credential.
	ErrCredentialNotFound = fmt.Errorf("%w: credential", ErrNotFound)
	// ErrBeforeCreation says that a moment is before the creation of the repository.
	ErrBeforeCreation = fmt.Errorf("%w: before the creation", ErrNotFound)
)

// Facts that say which item an [ErrExists] is about. They match it, too.
var (
	// ErrRepositoryExists says that the name of a repository is taken.
	ErrRepositoryExists = fmt.Errorf("%w: repository", ErrExists)
	// ErrRefExists says that the name of a branch or a tag is taken.
	ErrRefExists = fmt.Errorf("%w: ref", ErrExists)
	// ErrNoteExists says that a commit has a note.
	ErrNoteExists = fmt.Errorf("%w: note", ErrExists)
	// ErrCredentialExists says that a repository has a stored credential.
	ErrCredentialExists = fmt.Errorf("%w: credential", ErrExists)
)

// Facts that say more than [ErrInvalid], which they match.
var (
	// ErrInvalidRefName says that a name breaks git's rules, or ours.
	ErrInvalidRefName = fmt.Errorf("%w: refname", ErrInvalid)
	// ErrInvalidRevision says that a revision is not taken, or ambiguous.
	ErrInvalidRevision = fmt.Errorf("%w: revision", ErrInvalid)
	// ErrInvalidCursor says that a cursor is malformed, or of another listing.
	ErrInvalidCursor = fmt.Errorf("%w: cursor", ErrInvalid)
	// ErrFuture says that a moment, or a position of the journal, has not come.
	ErrFuture = fmt.Errorf("%w: moment", ErrInvalid)
	// ErrNotEphemeral says that a name is that of no ephemeral branch, where only one will do.
	ErrNotEphemeral = fmt.Errorf("%w: no ephemeral branch", ErrInvalid)
	// ErrAddress says that the address of an upstream is not allowed.
	ErrAddress = fmt.Errorf("%w: address", ErrInvalid)
)

// Facts that say what is not as expected. They match [ErrStale], too.
var (
	// ErrSourceMoved says that what is to be merged has moved.
	ErrSourceMoved = fmt.Errorf("%w: source", ErrStale)
	// ErrResultChanged says that a merge does not come to the tree that was shown.
	ErrResultChanged = fmt.Errorf("%w: result", ErrStale)
)

// failure is a fact with words for the client.
type failure struct {
	kind error
	text string
}

func (f *failure) Error() string        { return f.text }
func (f *failure) Is(target error) bool { return errors.Is(f.kind, target) }

// fail returns an error of a kind with words for the client.
func fail(kind error, format string, args ...any) error {
	return &failure{kind: kind, text: fmt.Sprintf(format, args...)}
}

// missingBranch says that a namespace has no such branch, and whether the other one has.
func missingBranch(ctx context.Context, names lookuper, ns refs.Namespace, what, name string) error {
	other, where := refs.Ephemeral, "there is one among the ephemeral branches"
	if ns == refs.Ephemeral {
		other, where = refs.Main, "there is one that is not ephemeral"
	}
	if _, err := names.Lookup(ctx, other.Full(branchPrefix+name)); err == nil {
		return fail(ErrRefNotFound, "%s %q not found; %s", what, name, where)
	}
	return fail(ErrRefNotFound, "%s %q not found", what, name)
}

func invalid(format string, args ...any) error {
	return fail(ErrInvalid, format, args...)
}

// badName says which field of a request holds a name that breaks a rule of package refs.
func badName(field string, err error) error {
	if broken, ok := errors.AsType[*refs.NameError](err); ok {
		return fail(ErrInvalidRefName, "%s: %.200q %s", field, broken.Name, broken.Reason)
	}
	return fail(ErrInvalidRefName, "%s: %v", field, err)
}

// StaleError is [ErrStale] with its evidence, which is durable when the error is returned.
type StaleError struct {
	Branch           string
	Expected, Actual object.ID // zero for "no such branch"
	Of               StaleKind
}

// StaleKind says what is not as expected.
type StaleKind uint8

// What may not be as expected.
const (
	StaleTarget StaleKind = iota // the tip of the branch that is to move
	StaleSource                  // what is to be merged
	StaleResult                  // the tree that a merge comes to
)

func (e *StaleError) Error() string {
	switch e.Of {
	case StaleSource:
		return fmt.Sprintf("%q is at %s, not at the expected %s", e.Branch, e.Actual, e.Expected)
	case StaleResult:
		return fmt.Sprintf("the merge into %q comes to tree %s, not to the expected %s", e.Branch, e.Actual, e.Expected)
	case StaleTarget:
	}
	return fmt.Sprintf("branch %q is at %s, not at the expected %s", e.Branch, e.Actual, e.Expected)
}

// Is reports whether target is [ErrStale], or where Of says so [ErrSourceMoved] or
// [ErrResultChanged].
func (e *StaleError) Is(target error) bool {
	switch target {
	case ErrSourceMoved:
		return e.Of == StaleSource
	case ErrResultChanged:
		return e.Of == StaleResult
	}
	return target == ErrStale
}

// LimitError names the limit that a request exceeds. It matches [ErrTooLarge].
type LimitError struct {
	Limit string
	Max   int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: more than the limit of %d", e.Limit, e.Max)
}

// Is reports whether target is [ErrTooLarge].
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }
