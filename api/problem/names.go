package problem

import (
	"context"
	"syscall"

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
	"packhorse/odb/revwalk"
	"packhorse/odb/segment"
	"packhorse/odb/space"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
	"packhorse/pack/pktline"
	"packhorse/refs"
)

// names are the kinds of errors that have no type, by which [Code] knows them: as docs/api.md lists
// them.
var names = map[error]string{
	engine.ErrUnreadable:         "engine.ErrUnreadable",
	engine.ErrCorrupt:            "engine.ErrCorrupt",
	refs.ErrCorrupt:              "refs.ErrCorrupt",
	odb.ErrCorrupt:               "odb.ErrCorrupt",
	kv.ErrCorrupt:                "kv.ErrCorrupt",
	kv.ErrUnknown:                "kv.ErrUnknown",
	kv.ErrUnavailable:            "kv.ErrUnavailable",
	space.ErrShort:               "space.ErrShort",
	space.ErrNoRoom:              "space.ErrNoRoom",
	space.ErrRecovering:          "space.ErrRecovering",
	syscall.ENOSPC:               "syscall.ENOSPC",
	syscall.EDQUOT:               "syscall.EDQUOT",
	engine.ErrNotFound:           "engine.ErrNotFound",
	engine.ErrExists:             "engine.ErrExists",
	engine.ErrPast:               "engine.ErrPast",
	engine.ErrReadOnly:           "engine.ErrReadOnly",
	engine.ErrQuota:              "engine.ErrQuota",
	quota.ErrExceeded:            "quota.ErrExceeded",
	engine.ErrDeleted:            "engine.ErrDeleted",
	engine.ErrPurged:             "engine.ErrPurged",
	engine.ErrMoved:              "engine.ErrMoved",
	engine.ErrDefaultBranch:      "engine.ErrDefaultBranch",
	engine.ErrInvalid:            "engine.ErrInvalid",
	revision.ErrInvalid:          "revision.ErrInvalid",
	revision.ErrNotFound:         "revision.ErrNotFound",
	revision.ErrTagChain:         "revision.ErrTagChain",
	engine.ErrStale:              "engine.ErrStale",
	engine.ErrNoConflict:         "engine.ErrNoConflict",
	credential.ErrKey:            "credential.ErrKey",
	credential.ErrNone:           "credential.ErrNone",
	engine.ErrNoApp:              "engine.ErrNoApp",
	engine.ErrNoUpstream:         "engine.ErrNoUpstream",
	upstream.ErrDetaching:        "upstream.ErrDetaching",
	engine.ErrDetachTimeout:      "engine.ErrDetachTimeout",
	engine.ErrImporting:          "engine.ErrImporting",
	engine.ErrImportWait:         "engine.ErrImportWait",
	upstream.ErrOrigin:           "upstream.ErrOrigin",
	upstream.ErrNoState:          "upstream.ErrNoState",
	engine.ErrConflict:           "engine.ErrConflict",
	engine.ErrNotForward:         "engine.ErrNotForward",
	merge.ErrInTheWay:            "merge.ErrInTheWay",
	merge.ErrUnrelated:           "merge.ErrUnrelated",
	merge.ErrManyPaths:           "merge.ErrManyPaths",
	merge.ErrTooLarge:            "merge.ErrTooLarge",
	engine.ErrNoChange:           "engine.ErrNoChange",
	engine.ErrTooLarge:           "engine.ErrTooLarge",
	engine.ErrManyCommits:        "engine.ErrManyCommits",
	notes.ErrTooLarge:            "notes.ErrTooLarge",
	notes.ErrMalformed:           "notes.ErrMalformed",
	clonecache.ErrUnsent:         "clonecache.ErrUnsent",
	engine.ErrNoCheckpoints:      "engine.ErrNoCheckpoints",
	backup.ErrNone:               "backup.ErrNone",
	backup.ErrDamaged:            "backup.ErrDamaged",
	backup.ErrStoreDamaged:       "backup.ErrStoreDamaged",
	backup.ErrStranger:           "backup.ErrStranger",
	backup.ErrIncomplete:         "backup.ErrIncomplete",
	identity.ErrUnfinished:       "identity.ErrUnfinished",
	identity.ErrMoved:            "identity.ErrMoved",
	signature.ErrUnsigned:        "signature.ErrUnsigned",
	signature.ErrInvalid:         "signature.ErrInvalid",
	signature.ErrKey:             "signature.ErrKey",
	commit.ErrInvalid:            "commit.ErrInvalid",
	commit.ErrEdit:               "commit.ErrEdit",
	commit.ErrTooLarge:           "commit.ErrTooLarge",
	diff.ErrTooDeep:              "diff.ErrTooDeep",
	pathspec.ErrInvalid:          "pathspec.ErrInvalid",
	pathspec.ErrDepth:            "pathspec.ErrDepth",
	remote.ErrUnauthorized:       "remote.ErrUnauthorized",
	remote.ErrForbidden:          "remote.ErrForbidden",
	remote.ErrNotFound:           "remote.ErrNotFound",
	remote.ErrUnavailable:        "remote.ErrUnavailable",
	remote.ErrProtocol:           "remote.ErrProtocol",
	remote.ErrLimit:              "remote.ErrLimit",
	remote.ErrRejected:           "remote.ErrRejected",
	githubapp.ErrNotInstalled:    "githubapp.ErrNotInstalled",
	githubapp.ErrRefused:         "githubapp.ErrRefused",
	githubapp.ErrUnavailable:     "githubapp.ErrUnavailable",
	archive.ErrPrefix:            "archive.ErrPrefix",
	grep.ErrPattern:              "grep.ErrPattern",
	blame.ErrRange:               "blame.ErrRange",
	blame.ErrTooLarge:            "blame.ErrTooLarge",
	patch.ErrMalformed:           "patch.ErrMalformed",
	patch.ErrEmpty:               "patch.ErrEmpty",
	patch.ErrTooLarge:            "patch.ErrTooLarge",
	refs.ErrDenied:               "refs.ErrDenied",
	refs.ErrNotFound:             "refs.ErrNotFound",
	refs.ErrRepositoryNotFound:   "refs.ErrRepositoryNotFound",
	refs.ErrStale:                "refs.ErrStale",
	refs.ErrNameConflict:         "refs.ErrNameConflict",
	refs.ErrInvalidName:          "refs.ErrInvalidName",
	refs.ErrInvalidRepoID:        "refs.ErrInvalidRepoID",
	refs.ErrInvalidPolicy:        "refs.ErrInvalidPolicy",
	pathpolicy.ErrInvalid:        "pathpolicy.ErrInvalid",
	refs.ErrLimit:                "refs.ErrLimit",
	fair.ErrBusy:                 "fair.ErrBusy",
	fair.ErrWork:                 "fair.ErrWork",
	fair.ErrMemory:               "fair.ErrMemory",
	refs.ErrBusy:                 "refs.ErrBusy",
	refs.ErrReceiptMismatch:      "refs.ErrReceiptMismatch",
	refs.ErrInvalidReceiptKey:    "refs.ErrInvalidReceiptKey",
	refs.ErrTrimmed:              "refs.ErrTrimmed",
	refs.ErrBeforeCreation:       "refs.ErrBeforeCreation",
	refs.ErrFuture:               "refs.ErrFuture",
	refs.ErrInvalidJournalCursor: "refs.ErrInvalidJournalCursor",
	refs.ErrInvalidFeedCursor:    "refs.ErrInvalidFeedCursor",
	refs.ErrFeedGone:             "refs.ErrFeedGone",
	refs.ErrUnchanged:            "refs.ErrUnchanged",
	organization.ErrTooLarge:     "organization.ErrTooLarge",
	organization.ErrBusy:         "organization.ErrBusy",
	refs.ErrAlone:                "refs.ErrAlone",
	odb.ErrUncommitted:           "odb.ErrUncommitted",
	ingest.ErrBadPack:            "ingest.ErrBadPack",
	odb.ErrInvalidPrefix:         "odb.ErrInvalidPrefix",
	revwalk.ErrNoCommits:         "revwalk.ErrNoCommits",
	odb.ErrMissing:               "odb.ErrMissing",
	odb.ErrDisagree:              "odb.ErrDisagree",
	odb.ErrNotFound:              "odb.ErrNotFound",
	odb.ErrNotHeld:               "odb.ErrNotHeld",
	odb.ErrNoPool:                "odb.ErrNoPool",
	odb.ErrTooLarge:              "odb.ErrTooLarge",
	segment.ErrLargeChain:        "segment.ErrLargeChain",
	revwalk.ErrNotCommit:         "revwalk.ErrNotCommit",
	segment.ErrCopyDamaged:       "segment.ErrCopyDamaged",
	segment.ErrFormat:            "segment.ErrFormat",
	odb.ErrMoved:                 "odb.ErrMoved",
	odb.ErrNeeded:                "odb.ErrNeeded",
	odb.ErrGone:                  "odb.ErrGone",
	odb.ErrPruned:                "odb.ErrPruned",
	odb.ErrTaken:                 "odb.ErrTaken",
	odb.ErrManyLayers:            "odb.ErrManyLayers",
	odb.ErrClosed:                "odb.ErrClosed",
	pack.ErrLimit:                "pack.ErrLimit",
	pack.ErrCorrupt:              "pack.ErrCorrupt",
	pack.ErrChecksum:             "pack.ErrChecksum",
	pack.ErrCount:                "pack.ErrCount",
	delta.ErrTooLarge:            "delta.ErrTooLarge",
	delta.ErrCorrupt:             "delta.ErrCorrupt",
	object.ErrNameTooLong:        "object.ErrNameTooLong",
	object.ErrInvalidID:          "object.ErrInvalidID",
	object.ErrMalformed:          "object.ErrMalformed",
	object.ErrUnknownType:        "object.ErrUnknownType",
	object.ErrCollision:          "object.ErrCollision",
	object.ErrSize:               "object.ErrSize",
	pktline.ErrLength:            "pktline.ErrLength",
	pktline.ErrTooLong:           "pktline.ErrTooLong",
	kv.ErrConflict:               "kv.ErrConflict",
	kv.ErrSnapshotExpired:        "kv.ErrSnapshotExpired",
	kv.ErrClosed:                 "kv.ErrClosed",
	kv.ErrFailed:                 "kv.ErrFailed",
	kv.ErrLocked:                 "kv.ErrLocked",
	kv.ErrTooLarge:               "kv.ErrTooLarge",
	kv.ErrNotFound:               "kv.ErrNotFound",
	kv.ErrEmptyKey:               "kv.ErrEmptyKey",
	file.ErrClosed:               "file.ErrClosed",
	file.ErrUnavailable:          "file.ErrUnavailable",
	file.ErrLocked:               "file.ErrLocked",
	file.ErrNotFound:             "file.ErrNotFound",
	file.ErrExists:               "file.ErrExists",
	file.ErrName:                 "file.ErrName",
	file.ErrReadOnly:             "file.ErrReadOnly",
	file.ErrRange:                "file.ErrRange",
	context.Canceled:             "context.Canceled",
	context.DeadlineExceeded:     "context.DeadlineExceeded",
}
