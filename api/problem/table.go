package problem

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"time"

	"packhorse/api/code"
	"packhorse/engine"
	"packhorse/engine/archive"
	"packhorse/engine/backup"
	"packhorse/engine/blame"
	"packhorse/engine/clonecache"
	"packhorse/engine/commit"
	"packhorse/engine/credential"
	"packhorse/engine/diff"
	"packhorse/engine/grep"
	"packhorse/engine/identity"
	"packhorse/engine/merge"
	"packhorse/engine/notes"
	"packhorse/engine/organization"
	"packhorse/engine/outbound"
	"packhorse/engine/patch"
	"packhorse/engine/pathpolicy"
	"packhorse/engine/pathspec"
	"packhorse/engine/quota"
	"packhorse/engine/revision"
	"packhorse/engine/signature"
	"packhorse/engine/upstream"
	"packhorse/engine/upstream/githubapp"
	"packhorse/engine/upstream/remote"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/file"
	"packhorse/odb/ingest"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/odb/rescue"
	"packhorse/odb/revwalk"
	"packhorse/odb/segment"
	"packhorse/odb/space"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
	"packhorse/refs"
)

// row is the translation of one kind of error. A kind is the target of errors.Is, or a type without
// such a sentinel.
type row struct {
	kind    error
	typed   func(err error) error // typed[T], in place of a kind
	status  int
	code    code.Code
	message string        // "" uses the text of the error
	retry   time.Duration // for RetryAfter
	corrupt bool
	away    bool
	fields  func(err error) map[string]any
}

const (
	soon  = time.Second
	again = 2 * time.Second
	later = 5 * time.Second

	internal    = "internal error"
	unavailable = "the storage is not available, try again"
	manyFiles   = "the server has too many files open, try again"
	unknown     = "the storage went away during the write, and it is not known whether the write was made: " +
		"the same request with the same Idempotency-Key tells it"
)

// table is searched from the top: damage first, so that no other kind in the same chain can hide
// it, then a store that is away, which is never the client's mistake, then from the upper floors to
// the lower ones. Errors that a client cannot cause have a fixed text.
var table = []row{
	{
		kind: engine.ErrUnreadable, status: http.StatusBadGateway, code: code.Corrupt,
		message: "the storage returned objects that cannot be read", corrupt: true,
	},
	{
		kind: engine.ErrCorrupt, status: http.StatusInternalServerError, code: code.Corrupt,
		message: internal, corrupt: true,
	},
	{kind: refs.ErrCorrupt, status: http.StatusInternalServerError, code: code.Corrupt, message: internal, corrupt: true},
	{kind: odb.ErrCorrupt, status: http.StatusInternalServerError, code: code.Corrupt, message: internal, corrupt: true},
	{kind: kv.ErrCorrupt, status: http.StatusInternalServerError, code: code.Corrupt, message: internal, corrupt: true},
	{
		kind: kv.ErrUnknown, status: http.StatusServiceUnavailable, code: code.OutcomeUnknown,
		message: unknown, retry: again, away: true,
	},
	{
		kind: kv.ErrUnavailable, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: again, away: true,
	},
	{kind: space.ErrShort, status: http.StatusInsufficientStorage, code: code.ShortOfDisk},
	{kind: space.ErrNoRoom, status: http.StatusInsufficientStorage, code: code.ShortOfDisk},
	{kind: space.ErrRecovering, status: http.StatusServiceUnavailable, code: code.ShortOfDisk, retry: later},
	{typed: typed[*rescue.PanicError], status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{
		kind: syscall.ENOSPC, status: http.StatusInsufficientStorage, code: code.ShortOfDisk,
		message: "the server is short of disk space",
	},
	{ // of uploads that are under way, and of clones
		kind: file.ErrManyOpen, status: http.StatusServiceUnavailable, code: code.Busy, message: manyFiles, retry: later,
	},
	{kind: syscall.EMFILE, status: http.StatusServiceUnavailable, code: code.Busy, message: manyFiles, retry: later},
	{kind: syscall.ENFILE, status: http.StatusServiceUnavailable, code: code.Busy, message: manyFiles, retry: later},
	{
		kind: syscall.EDQUOT, status: http.StatusInsufficientStorage, code: code.ShortOfDisk,
		message: "the server is short of disk space",
	},

	{kind: engine.ErrRepositoryNotFound, status: http.StatusNotFound, code: code.RepositoryNotFound},
	{kind: engine.ErrRefNotFound, status: http.StatusNotFound, code: code.RefNotFound},
	{kind: engine.ErrCommitNotFound, status: http.StatusNotFound, code: code.CommitNotFound},
	{kind: engine.ErrObjectNotFound, status: http.StatusNotFound, code: code.ObjectNotFound},
	{kind: engine.ErrPathNotFound, status: http.StatusNotFound, code: code.PathNotFound},
	{kind: engine.ErrNoteNotFound, status: http.StatusNotFound, code: code.NoteNotFound},
	{kind: engine.ErrCredentialNotFound, status: http.StatusNotFound, code: code.CredentialNotFound},
	{kind: engine.ErrBeforeCreation, status: http.StatusNotFound, code: code.BeforeCreation},
	{kind: engine.ErrRepositoryExists, status: http.StatusConflict, code: code.RepositoryExists},
	{kind: engine.ErrRefExists, status: http.StatusConflict, code: code.RefExists},
	{kind: engine.ErrNoteExists, status: http.StatusConflict, code: code.NoteExists},
	{kind: engine.ErrCredentialExists, status: http.StatusConflict, code: code.CredentialExists},
	{kind: engine.ErrInvalidRefName, status: http.StatusBadRequest, code: code.InvalidRefName},
	{kind: engine.ErrInvalidRevision, status: http.StatusBadRequest, code: code.InvalidRevision},
	{kind: engine.ErrInvalidCursor, status: http.StatusBadRequest, code: code.InvalidCursor},
	{kind: engine.ErrFuture, status: http.StatusBadRequest, code: code.MomentInFuture},
	{kind: engine.ErrNotEphemeral, status: http.StatusBadRequest, code: code.RefNotFound},
	{kind: engine.ErrAddress, status: http.StatusBadRequest, code: code.AddressNotAllowed},
	{kind: engine.ErrSourceMoved, status: http.StatusConflict, code: code.SourceMoved},
	{kind: engine.ErrResultChanged, status: http.StatusConflict, code: code.ResultChanged},
	// What is not found, or exists, is one of the kinds above.
	{kind: engine.ErrNotFound, status: http.StatusNotFound, code: code.ObjectNotFound},
	{kind: engine.ErrExists, status: http.StatusConflict, code: code.RefExists},
	{kind: engine.ErrPast, status: http.StatusGone, code: code.HistoryGone, fields: oldestMoment},
	{kind: engine.ErrReadOnly, status: http.StatusForbidden, code: code.ReadOnly},
	{kind: engine.ErrQuota, status: http.StatusForbidden, code: code.TooManyRepositories},
	{kind: quota.ErrExceeded, status: http.StatusRequestEntityTooLarge, code: code.QuotaExceeded, fields: exceeded},
	{kind: engine.ErrDeleted, status: http.StatusConflict, code: code.RepositoryDeleted},
	{kind: engine.ErrPurged, status: http.StatusGone, code: code.RepositoryPurged},
	{kind: engine.ErrMoved, status: http.StatusConflict, code: code.RefsMoved, fields: moved},
	{kind: engine.ErrDefaultBranch, status: http.StatusConflict, code: code.IsDefaultBranch},
	{kind: engine.ErrInvalid, status: http.StatusBadRequest, code: code.InvalidRequest},
	{kind: revision.ErrInvalid, status: http.StatusBadRequest, code: code.InvalidRevision},
	{kind: revision.ErrNotFound, status: http.StatusNotFound, code: code.CommitNotFound},
	{kind: revision.ErrTagChain, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{kind: engine.ErrStale, status: http.StatusConflict, code: code.TargetMoved},
	{kind: engine.ErrNoConflict, status: http.StatusConflict, code: code.NoSuchConflict},
	{kind: credential.ErrKey, status: http.StatusServiceUnavailable, code: code.NotConfigured},
	{kind: credential.ErrNone, status: http.StatusNotFound, code: code.CredentialNotFound},
	{kind: engine.ErrNoApp, status: http.StatusPreconditionFailed, code: code.GitHubAppMissing},
	{kind: engine.ErrNoUpstream, status: http.StatusConflict, code: code.NoUpstream},
	{kind: upstream.ErrDetaching, status: http.StatusConflict, code: code.DetachInProgress},
	{kind: engine.ErrDetachTimeout, status: http.StatusGatewayTimeout, code: code.Timeout},
	{kind: engine.ErrImporting, status: http.StatusServiceUnavailable, code: code.Importing, retry: later},
	{kind: engine.ErrImportWait, status: http.StatusRequestTimeout, code: code.Cancelled},
	{kind: upstream.ErrOrigin, status: http.StatusBadRequest, code: code.InvalidRequest},
	{ // no request syncs
		typed: typed[*upstream.RefsError], status: http.StatusInternalServerError, code: code.Internal,
		message: internal,
	},
	{typed: typed[*upstream.FarError], status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: upstream.ErrNoState, status: http.StatusConflict, code: code.SyncStateMissing},
	{kind: engine.ErrEmptyPick, status: http.StatusConflict, code: code.EmptyPick},
	{typed: typed[*engine.ConflictError], status: http.StatusConflict, code: code.MergeConflict},
	{ // a diff that cannot be applied
		kind: engine.ErrConflict, status: http.StatusBadRequest, code: code.PatchDoesNotApply,
	},
	{kind: engine.ErrNotForward, status: http.StatusPreconditionFailed, code: code.NotFastForward},
	{kind: merge.ErrInTheWay, status: http.StatusBadRequest, code: code.InvalidResolution},
	{kind: merge.ErrUnrelated, status: http.StatusPreconditionFailed, code: code.UnrelatedHistories},
	{kind: merge.ErrManyPaths, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{kind: merge.ErrTooLarge, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{kind: engine.ErrNoChange, status: http.StatusBadRequest, code: code.EmptyPatch},
	{kind: engine.ErrTooLarge, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{kind: engine.ErrManyCommits, status: http.StatusTooManyRequests, code: code.TooManyCommits},
	{kind: notes.ErrTooLarge, status: http.StatusRequestEntityTooLarge, code: code.ObjectTooLarge},
	{kind: notes.ErrMalformed, status: http.StatusBadRequest, code: code.InvalidNotes},
	{kind: clonecache.ErrUnsent, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: engine.ErrNoCheckpoints, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{ // no request restores
		kind: backup.ErrNone, status: http.StatusInternalServerError, code: code.Internal,
		message: internal,
	},
	{kind: backup.ErrDamaged, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{ // no request backs up
		kind: backup.ErrStoreDamaged, status: http.StatusInternalServerError, code: code.Internal,
		message: internal,
	},
	{kind: backup.ErrStranger, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: backup.ErrIncomplete, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{ // no server opens the store
		kind: identity.ErrUnfinished, status: http.StatusInternalServerError, code: code.Internal,
		message: internal,
	},
	{kind: identity.ErrMoved, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: signature.ErrUnsigned, status: http.StatusForbidden, code: code.CommitUnsigned},
	{kind: signature.ErrInvalid, status: http.StatusForbidden, code: code.CommitSignatureInvalid},
	{kind: signature.ErrKey, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: commit.ErrInvalid, status: http.StatusBadRequest, code: code.InvalidFileOperation},
	{kind: commit.ErrEdit, status: http.StatusConflict, code: code.EditMismatch, fields: failedEdit},
	{kind: commit.ErrTooLarge, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{kind: diff.ErrAfter, status: http.StatusBadRequest, code: code.InvalidCursor},
	{kind: diff.ErrTooDeep, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{kind: pathspec.ErrInvalid, status: http.StatusBadRequest, code: code.InvalidPath},
	{kind: pathspec.ErrDepth, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{typed: typed[*outbound.RefusedError], status: http.StatusBadRequest, code: code.AddressNotAllowed},
	{kind: remote.ErrUnauthorized, status: http.StatusBadGateway, code: code.UpstreamDenied},
	{kind: remote.ErrForbidden, status: http.StatusBadGateway, code: code.UpstreamDenied},
	{kind: remote.ErrNotFound, status: http.StatusBadGateway, code: code.UpstreamNotFound},
	{kind: remote.ErrUnavailable, status: http.StatusBadGateway, code: code.UpstreamUnavailable},
	{kind: remote.ErrProtocol, status: http.StatusBadGateway, code: code.UpstreamFailed},
	{kind: remote.ErrLimit, status: http.StatusBadGateway, code: code.UpstreamFailed},
	{kind: remote.ErrRejected, status: http.StatusBadGateway, code: code.UpstreamFailed},
	{typed: typed[*remote.Error], status: http.StatusBadGateway, code: code.UpstreamFailed},
	{kind: githubapp.ErrNotInstalled, status: http.StatusPreconditionFailed, code: code.GitHubAppMissing},
	{kind: githubapp.ErrRefused, status: http.StatusBadGateway, code: code.UpstreamDenied},
	{kind: githubapp.ErrUnavailable, status: http.StatusBadGateway, code: code.UpstreamUnavailable},
	{kind: archive.ErrPrefix, status: http.StatusBadRequest, code: code.InvalidPath},
	{kind: grep.ErrPattern, status: http.StatusBadRequest, code: code.InvalidPattern},
	{kind: blame.ErrLeft, status: http.StatusBadRequest, code: code.InvalidCursor},
	{kind: blame.ErrRange, status: http.StatusBadRequest, code: code.InvalidLineRange},
	{kind: blame.ErrTooLarge, status: http.StatusRequestEntityTooLarge, code: code.ObjectTooLarge},
	{kind: patch.ErrMalformed, status: http.StatusBadRequest, code: code.InvalidPatch},
	{kind: patch.ErrEmpty, status: http.StatusBadRequest, code: code.EmptyPatch},
	{kind: patch.ErrTooLarge, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{ // git reports it; programs do not get it
		typed: typed[engine.RefusalError], status: http.StatusConflict, code: code.UpdateRefused,
	},

	{kind: refs.ErrDenied, status: http.StatusForbidden, code: code.PolicyDenied},
	{kind: refs.ErrNotFound, status: http.StatusNotFound, code: code.RefNotFound},
	{kind: refs.ErrRepositoryNotFound, status: http.StatusNotFound, code: code.RepositoryNotFound},
	{kind: refs.ErrStale, status: http.StatusConflict, code: code.TargetMoved},
	{kind: refs.ErrNameConflict, status: http.StatusConflict, code: code.RefNameConflict},
	{kind: refs.ErrInvalidName, status: http.StatusBadRequest, code: code.InvalidRefName},
	{kind: refs.ErrInvalidRepoID, status: http.StatusBadRequest, code: code.InvalidRequest},
	{kind: refs.ErrInvalidPolicy, status: http.StatusForbidden, code: code.InvalidPolicy},
	{kind: pathpolicy.ErrInvalid, status: http.StatusForbidden, code: code.InvalidPolicy},
	{kind: refs.ErrLimit, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{
		kind: fair.ErrBusy, status: http.StatusServiceUnavailable, code: code.Busy,
		message: "the server is busy, try again", retry: soon,
	},
	{
		kind: fair.ErrWork, status: http.StatusRequestEntityTooLarge, code: code.RequestTooCostly,
		message: "the answer takes more computing than the server allows one request: ask for less",
	},
	{
		kind: fair.ErrMemory, status: http.StatusRequestEntityTooLarge, code: code.RequestTooCostly,
		message: "the request takes more memory than the server has for all of them (--memory): ask for less",
	},
	{kind: refs.ErrBusy, status: http.StatusServiceUnavailable, code: code.Busy, retry: soon},
	{kind: refs.ErrReceiptMismatch, status: http.StatusConflict, code: code.IdempotencyKeyReused},
	{kind: refs.ErrInvalidReceiptKey, status: http.StatusBadRequest, code: code.InvalidRequest},
	{kind: refs.ErrTrimmed, status: http.StatusGone, code: code.EventsGone, fields: oldest},
	{kind: refs.ErrBeforeCreation, status: http.StatusGone, code: code.BeforeCreation},
	{kind: refs.ErrFuture, status: http.StatusBadRequest, code: code.MomentInFuture},
	{kind: refs.ErrInvalidJournalCursor, status: http.StatusBadRequest, code: code.InvalidCursor},
	{kind: refs.ErrInvalidFeedCursor, status: http.StatusBadRequest, code: code.InvalidCursor},
	{kind: refs.ErrFeedGone, status: http.StatusGone, code: code.EventsGone, fields: oldestCursor},
	{kind: refs.ErrUnchanged, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{ // of org apply
		kind: organization.ErrTooLarge, status: http.StatusInternalServerError, code: code.Internal,
		message: internal,
	},
	{kind: organization.ErrBusy, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: refs.ErrAlone, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: odb.ErrUncommitted, status: http.StatusInternalServerError, code: code.Internal, message: internal},

	{kind: ingest.ErrBadPack, status: http.StatusBadRequest, code: code.InvalidPack},
	{typed: typed[*odb.RefusedFileError], status: http.StatusBadRequest, code: code.InvalidObject},
	{typed: typed[*packgen.FilterError], status: http.StatusBadRequest, code: code.InvalidRequest},
	{kind: odb.ErrInvalidPrefix, status: http.StatusBadRequest, code: code.InvalidRequest},
	{kind: revwalk.ErrNoCommits, status: http.StatusBadRequest, code: code.InvalidRequest},
	{kind: odb.ErrMissing, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: odb.ErrDisagree, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: odb.ErrNotFound, status: http.StatusNotFound, code: code.ObjectNotFound},
	{ // no request holds files
		kind: odb.ErrNotHeld, status: http.StatusInternalServerError, code: code.Internal,
		message: internal,
	},
	{kind: odb.ErrNoPool, status: http.StatusNotFound, code: code.RepositoryNotFound, message: "repository not found"},
	{kind: odb.ErrTooLarge, status: http.StatusRequestEntityTooLarge, code: code.ObjectTooLarge},
	{kind: segment.ErrLargeChain, status: http.StatusRequestEntityTooLarge, code: code.ObjectTooLarge},
	{kind: revwalk.ErrNotCommit, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{
		kind: segment.ErrCopyDamaged, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: soon,
	},
	{kind: segment.ErrFormat, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: odb.ErrMoved, status: http.StatusServiceUnavailable, code: code.Unavailable, message: unavailable, retry: soon},
	{
		kind: odb.ErrNeeded, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: soon,
	},
	{kind: odb.ErrGone, status: http.StatusServiceUnavailable, code: code.Unavailable, message: unavailable, retry: soon},
	{
		kind: odb.ErrPruned, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: soon,
	},
	{kind: odb.ErrTaken, status: http.StatusServiceUnavailable, code: code.Unavailable, message: unavailable, retry: soon},
	{
		kind: odb.ErrManyLayers, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: later,
	},
	{
		kind: odb.ErrClosed, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: later,
	},

	{kind: pack.ErrLimit, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{kind: pack.ErrCorrupt, status: http.StatusBadRequest, code: code.InvalidPack},
	{kind: pack.ErrChecksum, status: http.StatusBadRequest, code: code.InvalidPack},
	{kind: pack.ErrCount, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: delta.ErrTooLarge, status: http.StatusRequestEntityTooLarge, code: code.ObjectTooLarge},
	{kind: delta.ErrCorrupt, status: http.StatusBadRequest, code: code.InvalidPack},
	{typed: typed[*object.CheckError], status: http.StatusBadRequest, code: code.InvalidObject},
	{kind: object.ErrNameTooLong, status: http.StatusBadRequest, code: code.InvalidObject},
	{kind: object.ErrInvalidID, status: http.StatusBadRequest, code: code.InvalidRequest},
	{kind: object.ErrMalformed, status: http.StatusBadRequest, code: code.InvalidObject},
	{kind: object.ErrUnknownType, status: http.StatusBadRequest, code: code.InvalidObject},
	{kind: object.ErrCollision, status: http.StatusBadRequest, code: code.InvalidObject},
	{kind: object.ErrSize, status: http.StatusBadRequest, code: code.InvalidObject},
	{kind: pktline.ErrLength, status: http.StatusBadRequest, code: code.GitProtocolError},
	{kind: pktline.ErrTooLong, status: http.StatusBadRequest, code: code.GitProtocolError},

	{
		kind: kv.ErrConflict, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: soon,
	},
	{
		kind: kv.ErrSnapshotExpired, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: soon,
	},
	{
		kind: kv.ErrClosed, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: later,
	},
	{
		kind: kv.ErrFailed, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: later,
	},
	{
		kind: kv.ErrLocked, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: later,
	},
	{kind: kv.ErrTooLarge, status: http.StatusRequestEntityTooLarge, code: code.LimitExceeded},
	{kind: kv.ErrNotFound, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: kv.ErrEmptyKey, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{
		kind: file.ErrClosed, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: later,
	},
	{
		kind: file.ErrUnavailable, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: soon,
	},
	{
		kind: file.ErrLocked, status: http.StatusServiceUnavailable, code: code.Unavailable,
		message: unavailable, retry: later,
	},
	{kind: file.ErrNotFound, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: file.ErrExists, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: file.ErrName, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: file.ErrReadOnly, status: http.StatusInternalServerError, code: code.Internal, message: internal},
	{kind: file.ErrRange, status: http.StatusInternalServerError, code: code.Internal, message: internal},

	{
		kind: context.Canceled, status: http.StatusServiceUnavailable, code: code.Cancelled,
		message: "the request was cancelled", retry: soon,
	},
	{
		kind: context.DeadlineExceeded, status: http.StatusGatewayTimeout, code: code.Timeout,
		message: "the request took too long",
	},

	{ // its cause has a row
		typed: typed[*engine.StepError], status: http.StatusInternalServerError, code: code.Internal,
		message: internal,
	},
}

// typed returns the error of a type that err is or wraps, or nil.
func typed[T error](err error) error {
	if found, ok := errors.AsType[T](err); ok {
		return found
	}
	return nil
}

func exceeded(err error) map[string]any {
	e, ok := errors.AsType[*quota.ExceededError](err)
	if !ok {
		return nil
	}
	return map[string]any{"quota": map[string]any{"of": e.Of, "quota_bytes": e.Max, "used_bytes": e.Used}}
}

func failedEdit(err error) map[string]any {
	e, ok := errors.AsType[*commit.EditError](err)
	if !ok {
		return nil
	}
	return map[string]any{"edit": map[string]any{
		"path": e.Path, "index": e.Index, "found": e.Found, "expected": e.Expected, "overlaps": e.Overlaps,
	}}
}

func oldest(err error) map[string]any {
	trimmed, ok := errors.AsType[*refs.TrimmedError](err)
	if !ok {
		return nil
	}
	return map[string]any{"oldest": trimmed.Oldest}
}

func oldestMoment(err error) map[string]any {
	past, ok := errors.AsType[*engine.PastError](err)
	if !ok {
		return nil
	}
	return map[string]any{"oldest": past.Oldest, "oldest_at": past.Since.Format(time.RFC3339Nano)}
}

func moved(err error) map[string]any {
	conflict, ok := errors.AsType[*engine.MovedError](err)
	if !ok {
		return nil
	}
	type movedRef struct {
		Ref      string `json:"ref"`
		Expected string `json:"expected"`
		Actual   string `json:"actual"`
	}
	told := make([]movedRef, 0, len(conflict.Refs))
	for _, ref := range conflict.Refs {
		told = append(told, movedRef{ref.Name, ref.Expected.String(), ref.Actual.String()})
	}
	return map[string]any{"moved": told, "moved_count": conflict.Count}
}

func oldestCursor(err error) map[string]any {
	gone, ok := errors.AsType[*refs.FeedGoneError](err)
	if !ok {
		return nil
	}
	return map[string]any{"oldest": gone.Oldest.String()}
}
