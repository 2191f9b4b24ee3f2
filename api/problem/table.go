package problem

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"time"

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
	unknown     = "the storage went away during the write, and it is not known whether the write was made: " +
		"the same request with the same Idempotency-Key tells it"
)

// table is searched from the top: damage first, so that no other kind in the same chain can hide
// it, then a store that is away, which is never the client's mistake, then from the upper floors to
// the lower ones. Errors that a client cannot cause have a fixed text.
var table = []row{
	{
		kind:    engine.ErrUnreadable,
		status:  http.StatusBadGateway,
		message: "the storage returned objects that cannot be read",
		corrupt: true,
	},
	{kind: engine.ErrCorrupt, status: http.StatusInternalServerError, message: internal, corrupt: true},
	{kind: refs.ErrCorrupt, status: http.StatusInternalServerError, message: internal, corrupt: true},
	{kind: odb.ErrCorrupt, status: http.StatusInternalServerError, message: internal, corrupt: true},
	{kind: kv.ErrCorrupt, status: http.StatusInternalServerError, message: internal, corrupt: true},
	{kind: kv.ErrUnknown, status: http.StatusServiceUnavailable, message: unknown, retry: again, away: true},
	{kind: kv.ErrUnavailable, status: http.StatusServiceUnavailable, message: unavailable, retry: again, away: true},
	{kind: space.ErrShort, status: http.StatusInsufficientStorage},
	{kind: space.ErrNoRoom, status: http.StatusInsufficientStorage},
	{kind: space.ErrRecovering, status: http.StatusServiceUnavailable, retry: later},
	{typed: typed[*rescue.PanicError], status: http.StatusInternalServerError, message: internal},
	{kind: syscall.ENOSPC, status: http.StatusInsufficientStorage, message: "the server is short of disk space"},
	{kind: syscall.EDQUOT, status: http.StatusInsufficientStorage, message: "the server is short of disk space"},

	{kind: engine.ErrNotFound, status: http.StatusNotFound},
	{kind: engine.ErrExists, status: http.StatusConflict},
	{kind: engine.ErrPast, status: http.StatusGone, fields: oldestMoment},
	{kind: engine.ErrReadOnly, status: http.StatusForbidden},
	{kind: engine.ErrQuota, status: http.StatusForbidden},
	{kind: quota.ErrExceeded, status: http.StatusRequestEntityTooLarge, fields: exceeded},
	{kind: engine.ErrDeleted, status: http.StatusConflict},
	{kind: engine.ErrPurged, status: http.StatusGone},
	{kind: engine.ErrMoved, status: http.StatusConflict, fields: moved},
	{kind: engine.ErrDefaultBranch, status: http.StatusConflict},
	{kind: engine.ErrInvalid, status: http.StatusBadRequest},
	{kind: revision.ErrInvalid, status: http.StatusBadRequest},
	{kind: revision.ErrNotFound, status: http.StatusNotFound},
	{kind: revision.ErrTagChain, status: http.StatusRequestEntityTooLarge},
	{kind: engine.ErrStale, status: http.StatusConflict},
	{kind: engine.ErrNoConflict, status: http.StatusConflict},
	{kind: credential.ErrKey, status: http.StatusServiceUnavailable},
	{kind: credential.ErrNone, status: http.StatusNotFound},
	{kind: engine.ErrNoApp, status: http.StatusPreconditionFailed},
	{kind: engine.ErrNoUpstream, status: http.StatusConflict},
	{kind: upstream.ErrDetaching, status: http.StatusConflict},
	{kind: engine.ErrDetachTimeout, status: http.StatusGatewayTimeout},
	{kind: engine.ErrImporting, status: http.StatusServiceUnavailable, retry: later},
	{kind: engine.ErrImportWait, status: http.StatusRequestTimeout},
	{kind: upstream.ErrOrigin, status: http.StatusBadRequest},
	{typed: typed[*upstream.RefsError], status: http.StatusInternalServerError, message: internal}, // no request syncs
	{typed: typed[*upstream.FarError], status: http.StatusInternalServerError, message: internal},
	{kind: upstream.ErrNoState, status: http.StatusConflict},
	{typed: typed[*engine.ConflictError], status: http.StatusConflict},
	{kind: engine.ErrConflict, status: http.StatusBadRequest}, // a diff that cannot be applied
	{kind: engine.ErrNotForward, status: http.StatusPreconditionFailed},
	{kind: merge.ErrInTheWay, status: http.StatusBadRequest},
	{kind: merge.ErrUnrelated, status: http.StatusPreconditionFailed},
	{kind: merge.ErrManyPaths, status: http.StatusRequestEntityTooLarge},
	{kind: merge.ErrTooLarge, status: http.StatusRequestEntityTooLarge},
	{kind: engine.ErrNoChange, status: http.StatusBadRequest},
	{kind: engine.ErrTooLarge, status: http.StatusRequestEntityTooLarge},
	{kind: engine.ErrManyCommits, status: http.StatusTooManyRequests},
	{kind: notes.ErrTooLarge, status: http.StatusRequestEntityTooLarge},
	{kind: notes.ErrMalformed, status: http.StatusBadRequest},
	{kind: clonecache.ErrUnsent, status: http.StatusInternalServerError, message: internal},
	{kind: engine.ErrNoCheckpoints, status: http.StatusInternalServerError, message: internal},
	{kind: backup.ErrNone, status: http.StatusInternalServerError, message: internal}, // no request restores
	{kind: backup.ErrDamaged, status: http.StatusInternalServerError, message: internal},
	{kind: backup.ErrStoreDamaged, status: http.StatusInternalServerError, message: internal}, // no request backs up
	{kind: backup.ErrStranger, status: http.StatusInternalServerError, message: internal},
	{kind: backup.ErrIncomplete, status: http.StatusInternalServerError, message: internal},
	{kind: identity.ErrUnfinished, status: http.StatusInternalServerError, message: internal}, // no server opens the store
	{kind: identity.ErrMoved, status: http.StatusInternalServerError, message: internal},
	{kind: signature.ErrUnsigned, status: http.StatusForbidden},
	{kind: signature.ErrInvalid, status: http.StatusForbidden},
	{kind: signature.ErrKey, status: http.StatusInternalServerError, message: internal},
	{kind: commit.ErrInvalid, status: http.StatusBadRequest},
	{kind: commit.ErrEdit, status: http.StatusConflict, fields: failedEdit},
	{kind: commit.ErrTooLarge, status: http.StatusRequestEntityTooLarge},
	{kind: diff.ErrTooDeep, status: http.StatusRequestEntityTooLarge},
	{kind: pathspec.ErrInvalid, status: http.StatusBadRequest},
	{kind: pathspec.ErrDepth, status: http.StatusRequestEntityTooLarge},
	{typed: typed[*outbound.RefusedError], status: http.StatusBadRequest},
	{kind: remote.ErrUnauthorized, status: http.StatusBadGateway},
	{kind: remote.ErrForbidden, status: http.StatusBadGateway},
	{kind: remote.ErrNotFound, status: http.StatusBadGateway},
	{kind: remote.ErrUnavailable, status: http.StatusBadGateway},
	{kind: remote.ErrProtocol, status: http.StatusBadGateway},
	{kind: remote.ErrLimit, status: http.StatusBadGateway},
	{kind: remote.ErrRejected, status: http.StatusBadGateway},
	{typed: typed[*remote.Error], status: http.StatusBadGateway},
	{kind: githubapp.ErrNotInstalled, status: http.StatusPreconditionFailed},
	{kind: githubapp.ErrRefused, status: http.StatusBadGateway},
	{kind: githubapp.ErrUnavailable, status: http.StatusBadGateway},
	{kind: archive.ErrPrefix, status: http.StatusBadRequest},
	{kind: grep.ErrPattern, status: http.StatusBadRequest},
	{kind: blame.ErrRange, status: http.StatusBadRequest},
	{kind: blame.ErrTooLarge, status: http.StatusRequestEntityTooLarge},
	{kind: patch.ErrMalformed, status: http.StatusBadRequest},
	{kind: patch.ErrEmpty, status: http.StatusBadRequest},
	{kind: patch.ErrTooLarge, status: http.StatusRequestEntityTooLarge},
	{typed: typed[engine.RefusalError], status: http.StatusConflict}, // git reports it; programs do not get it

	{kind: refs.ErrDenied, status: http.StatusForbidden},
	{kind: refs.ErrNotFound, status: http.StatusNotFound},
	{kind: refs.ErrRepositoryNotFound, status: http.StatusNotFound},
	{kind: refs.ErrStale, status: http.StatusConflict},
	{kind: refs.ErrNameConflict, status: http.StatusConflict},
	{kind: refs.ErrInvalidName, status: http.StatusBadRequest},
	{kind: refs.ErrInvalidRepoID, status: http.StatusBadRequest},
	{kind: refs.ErrInvalidPolicy, status: http.StatusForbidden},
	{kind: pathpolicy.ErrInvalid, status: http.StatusForbidden},
	{kind: refs.ErrLimit, status: http.StatusRequestEntityTooLarge},
	{kind: fair.ErrBusy, status: http.StatusServiceUnavailable, message: "the server is busy, try again", retry: soon},
	{
		kind: fair.ErrWork, status: http.StatusRequestEntityTooLarge,
		message: "the answer takes more computing than the server allows one request: ask for less",
	},
	{
		kind: fair.ErrMemory, status: http.StatusRequestEntityTooLarge,
		message: "the request takes more memory than the server has for all of them (--memory): ask for less",
	},
	{kind: refs.ErrBusy, status: http.StatusServiceUnavailable, retry: soon},
	{kind: refs.ErrReceiptMismatch, status: http.StatusConflict},
	{kind: refs.ErrInvalidReceiptKey, status: http.StatusBadRequest},
	{kind: refs.ErrTrimmed, status: http.StatusGone, fields: oldest},
	{kind: refs.ErrBeforeCreation, status: http.StatusGone},
	{kind: refs.ErrFuture, status: http.StatusBadRequest},
	{kind: refs.ErrInvalidJournalCursor, status: http.StatusBadRequest},
	{kind: refs.ErrInvalidFeedCursor, status: http.StatusBadRequest},
	{kind: refs.ErrFeedGone, status: http.StatusGone, fields: oldestCursor},
	{kind: refs.ErrUnchanged, status: http.StatusInternalServerError, message: internal},
	{kind: organization.ErrTooLarge, status: http.StatusInternalServerError, message: internal}, // of org apply
	{kind: organization.ErrBusy, status: http.StatusInternalServerError, message: internal},
	{kind: refs.ErrAlone, status: http.StatusInternalServerError, message: internal},
	{kind: odb.ErrUncommitted, status: http.StatusInternalServerError, message: internal},

	{kind: ingest.ErrBadPack, status: http.StatusBadRequest},
	{typed: typed[*odb.RefusedFileError], status: http.StatusBadRequest},
	{typed: typed[*packgen.FilterError], status: http.StatusBadRequest},
	{kind: odb.ErrInvalidPrefix, status: http.StatusBadRequest},
	{kind: revwalk.ErrNoCommits, status: http.StatusBadRequest},
	{kind: odb.ErrMissing, status: http.StatusInternalServerError, message: internal},
	{kind: odb.ErrDisagree, status: http.StatusInternalServerError, message: internal},
	{kind: odb.ErrNotFound, status: http.StatusNotFound},
	{kind: odb.ErrNotHeld, status: http.StatusInternalServerError, message: internal}, // no request holds files
	{kind: odb.ErrNoPool, status: http.StatusNotFound, message: "repository not found"},
	{kind: odb.ErrTooLarge, status: http.StatusRequestEntityTooLarge},
	{kind: segment.ErrLargeChain, status: http.StatusRequestEntityTooLarge},
	{kind: revwalk.ErrNotCommit, status: http.StatusInternalServerError, message: internal},
	{kind: segment.ErrCopyDamaged, status: http.StatusServiceUnavailable, message: unavailable, retry: soon},
	{kind: segment.ErrFormat, status: http.StatusInternalServerError, message: internal},
	{kind: odb.ErrMoved, status: http.StatusServiceUnavailable, message: unavailable, retry: soon},
	{kind: odb.ErrNeeded, status: http.StatusServiceUnavailable, message: unavailable, retry: soon},
	{kind: odb.ErrGone, status: http.StatusServiceUnavailable, message: unavailable, retry: soon},
	{kind: odb.ErrPruned, status: http.StatusServiceUnavailable, message: unavailable, retry: soon},
	{kind: odb.ErrTaken, status: http.StatusServiceUnavailable, message: unavailable, retry: soon},
	{kind: odb.ErrManyLayers, status: http.StatusServiceUnavailable, message: unavailable, retry: later},
	{kind: odb.ErrClosed, status: http.StatusServiceUnavailable, message: unavailable, retry: later},

	{kind: pack.ErrLimit, status: http.StatusRequestEntityTooLarge},
	{kind: pack.ErrCorrupt, status: http.StatusBadRequest},
	{kind: pack.ErrChecksum, status: http.StatusBadRequest},
	{kind: pack.ErrCount, status: http.StatusInternalServerError, message: internal},
	{kind: delta.ErrTooLarge, status: http.StatusRequestEntityTooLarge},
	{kind: delta.ErrCorrupt, status: http.StatusBadRequest},
	{typed: typed[*object.CheckError], status: http.StatusBadRequest},
	{kind: object.ErrNameTooLong, status: http.StatusBadRequest},
	{kind: object.ErrInvalidID, status: http.StatusBadRequest},
	{kind: object.ErrMalformed, status: http.StatusBadRequest},
	{kind: object.ErrUnknownType, status: http.StatusBadRequest},
	{kind: object.ErrCollision, status: http.StatusBadRequest},
	{kind: object.ErrSize, status: http.StatusBadRequest},
	{kind: pktline.ErrLength, status: http.StatusBadRequest},
	{kind: pktline.ErrTooLong, status: http.StatusBadRequest},

	{kind: kv.ErrConflict, status: http.StatusServiceUnavailable, message: unavailable, retry: soon},
	{kind: kv.ErrSnapshotExpired, status: http.StatusServiceUnavailable, message: unavailable, retry: soon},
	{kind: kv.ErrClosed, status: http.StatusServiceUnavailable, message: unavailable, retry: later},
	{kind: kv.ErrFailed, status: http.StatusServiceUnavailable, message: unavailable, retry: later},
	{kind: kv.ErrLocked, status: http.StatusServiceUnavailable, message: unavailable, retry: later},
	{kind: kv.ErrTooLarge, status: http.StatusRequestEntityTooLarge},
	{kind: kv.ErrNotFound, status: http.StatusInternalServerError, message: internal},
	{kind: kv.ErrEmptyKey, status: http.StatusInternalServerError, message: internal},
	{kind: file.ErrClosed, status: http.StatusServiceUnavailable, message: unavailable, retry: later},
	{kind: file.ErrUnavailable, status: http.StatusServiceUnavailable, message: unavailable, retry: soon},
	{kind: file.ErrLocked, status: http.StatusServiceUnavailable, message: unavailable, retry: later},
	{kind: file.ErrNotFound, status: http.StatusInternalServerError, message: internal},
	{kind: file.ErrExists, status: http.StatusInternalServerError, message: internal},
	{kind: file.ErrName, status: http.StatusInternalServerError, message: internal},
	{kind: file.ErrReadOnly, status: http.StatusInternalServerError, message: internal},
	{kind: file.ErrRange, status: http.StatusInternalServerError, message: internal},

	{kind: context.Canceled, status: http.StatusServiceUnavailable, message: "the request was cancelled", retry: soon},
	{kind: context.DeadlineExceeded, status: http.StatusGatewayTimeout, message: "the request took too long"},

	{typed: typed[*engine.StepError], status: http.StatusInternalServerError, message: internal}, // its cause has a row
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
