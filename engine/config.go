package engine

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"packhorse/engine/clonecache"
	"packhorse/engine/maintain"
	"packhorse/engine/quota"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/space"
	"packhorse/odb/span"
	"packhorse/refs"
)

// Config is the configuration of a host. KV and Files are required; the caller closes them after
// [Host.Close].
type Config struct {
	KV      kv.Store
	Files   file.Store
	Objects odb.Options
	Refs    refs.Options
	// Clones keeps generated packs; nil keeps none. The host closes it.
	Clones *clonecache.Cache
	// Space watches the disk of the stores; nil never refuses a write. It stays the caller's to close.
	Space  *space.Watch
	Limits Limits
	// HistoryBytes is the memory of caches about histories: last changes of files, listings of commits
	// that may be continued, jumps along first parents, changes of lines for blame, and trigrams of
	// files for searches; 64 MiB when 0.
	HistoryBytes int64
	// Maintenance are the thresholds of maintenance; Background runs it in the background until the
	// host is closed. Scrub does so with scrubbing; the zero value does not.
	Maintenance maintain.Settings
	Background  bool
	Scrub       ScrubOptions
	// Processors are shared out among requests. What is computed in the background for webhooks takes
	// turns there, as their organizations', and maintenance is charged to those; neither with nil.
	Processors *fair.Processors
	// Census is the interval of counts of all that is stored; 0: nothing is counted.
	Census time.Duration
	// Sharing makes this host one of several over the same stores, of which one does each duty in the
	// background. With nil this host does all of them.
	Sharing *Sharing
	Logger  *slog.Logger
	// Now is the clock of everything that is recorded; time.Now when nil.
	Now func() time.Time
	// SecretKey seals stored secrets: credential.KeySize bytes, which must not change, or none, and
	// then there can be no secrets.
	SecretKey []byte
	// SigningKeys returns the contents of an organization's signing key files at the time of the
	// call; a nil function means no keys.
	SigningKeys func(org string) [][]byte
	// Quotas returns the quotas of an organization at the time of the call; a nil function means none.
	Quotas func(org string) quota.Limits
	// KeepHistory returns for how long the repositories of an organization can be read as they were,
	// at the time of the call; false, or a nil function, means the time of Maintenance.
	KeepHistory func(org string) (time.Duration, bool)
	// FollowOrg is given the row of an organization (package organization) as a write finds it, nil
	// for none, and returns when all that is known of the organization is as new: its keys, which the
	// write's Recheck asks, its webhooks and the rest. A nil function means that organizations are not
	// rows.
	FollowOrg func(ctx context.Context, org string, row []byte) error
	// Tracer records spans of work in the background, and of what requests have caused; nil for none.
	Tracer span.Tracer
	// Webhooks is the configuration of webhooks.
	Webhooks WebhookConfig
	// Upstreams is the configuration of upstreams.
	Upstreams UpstreamConfig
	// Version is sent to git clients and not stored.
	Version string
}

func (c *Config) setDefaults() {
	c.Limits.setDefaults()
	c.HistoryBytes = cmp.Or(c.HistoryBytes, 64<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.KeepHistory == nil {
		c.KeepHistory = func(string) (time.Duration, bool) { return 0, false }
	}
	if c.Objects.Now == nil {
		c.Objects.Now = c.Now
	}
	if c.Objects.Logger == nil {
		c.Objects.Logger = c.Logger
	}
	c.Maintenance.SetDefaults()
}

// Limits bound the size of one request. Zero fields take their defaults.
type Limits struct {
	// CommandCountMax bounds the ref updates of one push.
	CommandCountMax int
	// OperationCountMax bounds the file operations of one API commit.
	OperationCountMax int
	// OpenContentCountMax bounds the contents of one API commit that have begun and not ended.
	OpenContentCountMax int
	// LastCommitCountMax bounds the commits that one listing of files with their last commits
	// returns.
	LastCommitCountMax int
	// TraceBytesMax bounds the memory of the walk for a listing of files with their last commits; 0
	// means 256 MiB.
	TraceBytesMax int64
	// DiffFileBytes is the size of a file above which a diff does not look into it, as if it were
	// binary.
	DiffFileBytes int64
	// MergeBytesMax bounds the new objects of a merge in bytes; 0 means 256 MiB.
	MergeBytesMax int64
	// MergePathBytesMax bounds the memory for differing paths in a merge, in bytes; 0 means 256
	// MiB.
	MergePathBytesMax int64
	// VerifyCountMax bounds the commits that one change makes us look at for their signatures; 0 means
	// 100,000.
	VerifyCountMax int
	// ReceiptLife is the life of an idempotency record.
	ReceiptLife time.Duration
}

func (l *Limits) setDefaults() {
	l.CommandCountMax = cmp.Or(l.CommandCountMax, 10_000)
	l.OperationCountMax = cmp.Or(l.OperationCountMax, 100_000)
	l.OpenContentCountMax = cmp.Or(l.OpenContentCountMax, 1_000)
	l.LastCommitCountMax = cmp.Or(l.LastCommitCountMax, 100_000)
	l.TraceBytesMax = cmp.Or(l.TraceBytesMax, 256<<20)
	l.MergeBytesMax = cmp.Or(l.MergeBytesMax, 256<<20)
	l.DiffFileBytes = cmp.Or(l.DiffFileBytes, 512<<20)
	l.VerifyCountMax = cmp.Or(l.VerifyCountMax, 100_000)
	l.ReceiptLife = cmp.Or(l.ReceiptLife, 24*time.Hour)
}
