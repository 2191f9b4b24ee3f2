// Package engine implements the use cases of a host: it composes the object database, the refs and
// the operations on them.
//
// Start at [Open], which gives a [Host]; [Host.Repository] gives a [Repository]. Every method of
// the two is a use case and has a file of its own: create, fork, delete, list, detach; advertise,
// fetch, receive for git clients; commit, upload, restorecommit, createbranch, deleteref, tags,
// notes, notesrefs, branches, commits, commitdetail, files, metadata, file, archive, grep, events
// for programs. Only this package turns names into IDs and moves refs; the operations of the rooms
// below take an object store and object IDs.
//
// merge and mergepreview are two more use cases.
//
// Invariants of a repository hold by the preconditions of its batches (docs/invariants.md 2), not
// by locks: several hosts may work over one pair of stores.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"packhorse/engine/clonecache"
	"packhorse/engine/credential"
	"packhorse/engine/maintain"
	"packhorse/engine/webhook"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/odb/revwalk"
	"packhorse/odb/space"
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
	// HistoryBytes is the memory of caches about histories: last changes of files, and listings of
	// commits that may be continued; 64 MiB when 0.
	HistoryBytes int64
	// Maintenance are the thresholds of maintenance; Background runs it in the background until the
	// host is closed.
	Maintenance maintain.Settings
	Background  bool
	Logger      *slog.Logger
	// Now is the clock of everything that is recorded; time.Now when nil.
	Now func() time.Time
	// SecretKey seals stored secrets: credential.KeySize bytes, which must not change, or none, and
	// then there can be no secrets.
	SecretKey []byte
	// SigningKeys returns the contents of an organization's signing key files at the time of the
	// call; a nil function means no keys.
	SigningKeys func(org string) [][]byte
	// Webhooks is the configuration of webhooks.
	Webhooks WebhookConfig
	// Upstreams is the configuration of upstreams.
	Upstreams UpstreamConfig
	// Version is sent to git clients and not stored.
	Version string
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
	setDefault(&l.CommandCountMax, 10_000)
	setDefault(&l.OperationCountMax, 100_000)
	setDefault(&l.OpenContentCountMax, 1_000)
	setDefault(&l.LastCommitCountMax, 100_000)
	setDefault(&l.TraceBytesMax, 256<<20)
	setDefault(&l.DiffFileBytes, 512<<20)
	setDefault(&l.VerifyCountMax, 100_000)
	setDefault(&l.ReceiptLife, 24*time.Hour)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Host is every repository of a pair of stores. Its methods may be called concurrently.
type Host struct {
	storeID string
	keys    kv.Store
	files   file.Store
	objects *odb.Store
	names   *refs.Store
	outbox  outbox
	hooks   *webhook.Deliverer

	upstreams upstreams

	clones  *clonecache.Cache // nil: none
	space   *space.Watch      // nil: there is room always
	secrets *credential.Seal  // nil: no key
	// signingKeys is Config.SigningKeys; nil: no keys.
	signingKeys func(org string) [][]byte
	limits      Limits
	log         *slog.Logger
	now         func() time.Time

	traces   *traces
	listings *listings

	maintenance maintain.Settings
	worker      *maintain.Worker
	auxiliaries *maintain.Auxiliaries
	maintaining chan struct{} // holds one when a maintenance runs

	scrubbed scrubCounts

	// creators keeps creations of one organization, by a hash of its name, from failing each other's
	// preconditions. It guards nothing.
	creators [64]sync.Mutex
}

// Open opens the stores' repositories. It removes the leftovers of a crash of this server.
func Open(ctx context.Context, c Config) (*Host, error) {
	c.Limits.setDefaults()
	setDefault(&c.HistoryBytes, 64<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Objects.Now == nil {
		c.Objects.Now = c.Now
	}
	if c.Objects.Logger == nil {
		c.Objects.Logger = c.Logger
	}
	if c.Clones != nil {
		c.Space.Relieve(c.Clones.Clear)
	}
	secrets, err := credential.NewSeal(c.SecretKey)
	if err != nil {
		return nil, err
	}
	c.Maintenance.SetDefaults()
	id, err := openStoreID(ctx, c.KV)
	if err != nil {
		return nil, err
	}
	worker := maintain.NewWorker(c.Maintenance, c.Logger)
	if c.Background {
		c.Objects.Grew = worker.Grew
	}
	var objects *odb.Store
	auxiliaries := maintain.NewAuxiliaries(
		func(ctx context.Context, pool odb.PoolID) error {
			return repack.BuildAuxiliary(ctx, objects, pool, c.Maintenance.Pause)
		},
		func() bool { return objects.Busy() }, c.Logger)
	c.Objects.GrewLarge = auxiliaries.Add
	c.Objects.Reach = packgen.Reachability{}
	objects, err = odb.Open(ctx, c.KV, c.Files, c.Objects)
	if err != nil {
		return nil, fmt.Errorf("open object database: %w", err)
	}
	h := &Host{
		storeID:     id,
		keys:        c.KV,
		files:       c.Files,
		objects:     objects,
		names:       refs.Open(c.KV, c.Refs),
		outbox:      outbox{keys: c.KV},
		clones:      c.Clones,
		space:       c.Space,
		secrets:     secrets,
		signingKeys: c.SigningKeys,
		limits:      c.Limits,
		log:         c.Logger,
		now:         c.Now,

		traces:   newHistoryCache[commitKey, *revwalk.TracedFolder](c.HistoryBytes - c.HistoryBytes/4),
		listings: newHistoryCache[listingKey, *commitListing](c.HistoryBytes / 4),

		maintenance: c.Maintenance,
		worker:      worker,
		auxiliaries: auxiliaries,
		maintaining: make(chan struct{}, 1),
	}
	h.openWebhooks(c.Webhooks, c.Version)
	h.openUpstreams(c.Upstreams, c.Version)
	if c.Background {
		worker.Start(background{h})
	}
	if c.Upstreams.Enabled {
		h.upstreams.worker.Start(syncHost{h})
	}
	return h, nil
}

// Close ends the host's background work. Requests must have ended.
func (h *Host) Close(ctx context.Context) error {
	h.hooks.Stop()
	h.upstreams.close()
	h.worker.Stop()
	h.auxiliaries.Close()
	if h.clones != nil {
		h.clones.Close()
	}
	return h.objects.Close(ctx)
}
