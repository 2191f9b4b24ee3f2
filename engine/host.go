// Package engine implements the use cases of a host: it composes the object database, the refs and
// the operations on them.
//
// Start at [Config] and [Open], which gives a [Host]; [Host.Repository] gives a [Repository]. Every
// method of the two is a use case and has a file of its own. Only this package turns names into IDs
// and moves refs; the operations of the rooms below take an object store and object IDs. The map,
// by file:
//
//	config, host, repository, record,    Config, Host and Repository; the record of a repository; errors
//	errors
//	create, fork, settings,              the life of a repository
//	defaultbranch, list, detach
//	delete, deleted, undelete, purge     deletion, and what becomes of it
//	advertise, fetch, clone, receive,    git clients: refs, packs out, packs in; a push that creates its
//	firstpush                            repository
//	upload, patchupload, commit,         commits from files or a patch; writes that share a batch
//	combine
//	merge, mergepreview, previewtoken,   commits from other commits
//	cherrypick, resolution, land,
//	restorecommit, branchmove
//	moment, pastdefault                  the repository as it was
//	write, transaction, operation,       what writes do in one try; several of them as one, in one or
//	rehearsal                            several repositories
//	branches, createbranch, tags,        refs
//	deleteref, changerefs, undo
//	notes, notesrefs                     notes
//	commits, commitdetail, revision,     history, and the names that lead into it; cursors
//	cursor
//	files, file, metadata, lastcommit,   trees and files
//	readfiles, archive, diff, blame, grep
//	actor, signed, receipt               who writes, with whose signatures, and at most once
//	events, webhooks                     the journal, and what is told of it
//	upstreams, syncing, syncclaim,       other hosts
//	credential
//	causes                               which requests have caused what is told to others
//	maintain, scrub, fsck, backup,       care of the store
//	caretimes, storeid, unregistered
//	duties                               work in the background, and which server does it
//	usage, census                        what repositories store, and their quotas; what all store
//	inventory                            the repositories of all organizations, for their operator
//	narrate                              progress as git prints it
//
// Invariants of a repository hold by the preconditions of its batches (docs/invariants.md 2), not
// by locks: several hosts may work over one pair of stores.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/engine/blame"
	"packhorse/engine/catalog"
	"packhorse/engine/clonecache"
	"packhorse/engine/cluster"
	"packhorse/engine/credential"
	"packhorse/engine/grep"
	"packhorse/engine/maintain"
	"packhorse/engine/outbox"
	"packhorse/engine/quota"
	"packhorse/engine/removal"
	"packhorse/engine/revision"
	"packhorse/engine/webhook"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
	"packhorse/odb/revwalk"
	"packhorse/odb/space"
	"packhorse/odb/span"
	"packhorse/refs"
)

// Host is every repository of a pair of stores. Its methods may be called concurrently.
type Host struct {
	storeID string
	keys    kv.Store
	files   file.Store
	objects *odb.Store
	names   *refs.Store
	catalog *catalog.Catalog[record]
	recalls bool // repositories are opened without a read of their own, see Recall
	removed *removal.Sweeper
	outbox  outbox.Outbox[*record]
	hooks   *webhook.Deliverer

	upstreams upstreams

	clones  *clonecache.Cache // nil: none
	space   *space.Watch      // nil: there is room always
	secrets *credential.Seal  // nil: no key
	// signingKeys is Config.SigningKeys; nil: no keys.
	signingKeys func(org string) [][]byte
	quotas      *quota.Ledger
	// keepHistory is Config.KeepHistory.
	keepHistory func(org string) (time.Duration, bool)
	// followOrg is Config.FollowOrg; nil: organizations are not rows.
	followOrg func(ctx context.Context, org string, row []byte) error
	limits    Limits
	log       *slog.Logger
	tracer    span.Tracer // nil: none
	causes    causes
	now       func() time.Time

	traces   traces
	listings listings
	jumps    *revision.Jumps
	changes  *blame.Changes
	trigrams *grep.Trigrams

	maintenance maintain.Settings
	worker      *maintain.Worker
	auxiliaries *maintain.Auxiliaries // bitmaps and path filters
	histories   *maintain.Auxiliaries // trigrams and path histories, after those
	maintaining chan struct{}         // holds one when a maintenance runs
	processors  *fair.Processors      // Config.Processors

	scrubbed scrubCounts
	census   atomic.Pointer[Census] // nil: none was taken
	care     careTimes

	// One of the two is used: see duties.go.
	member    *cluster.Member
	endDuties context.CancelFunc
	working   sync.WaitGroup // duties of a host that is alone
	left      chan struct{}  // holds one when another server has gone
	// Of a host that shares its stores: joined is closed when there is a member, and nil without
	// sharing; look is the interval of looks at what other servers do.
	joined chan struct{}
	look   time.Duration

	// creations are the turns of creations among those of one organization, which would fail each
	// other's preconditions: each draws the next number. They guard nothing.
	creations *fair.Queue
}

// Open opens the stores' repositories. It removes the leftovers of a crash of this server.
func Open(ctx context.Context, c Config) (*Host, error) {
	c.setDefaults()
	if c.Clones != nil {
		c.Space.Relieve(space.Spare{
			Bytes: func() int64 { return c.Clones.Stats().Bytes },
			Free:  func(int64) { c.Clones.Clear() },
		})
	}
	secrets, err := credential.NewSeal(c.SecretKey)
	if err != nil {
		return nil, err
	}
	id, err := StoreID(ctx, c.KV)
	if err != nil {
		return nil, err
	}
	worker := maintain.NewWorker(c.Maintenance, c.Logger)
	if c.Background {
		c.Objects.Grew = worker.Grew
	}
	var objects *odb.Store
	busy := func() bool { return objects.Busy() }
	histories := maintain.NewAuxiliaries(func(ctx context.Context, pool odb.PoolID, owner string) error {
		ctx = c.Processors.Background(ctx, fair.Tenant{Org: owner})
		trigrams := repack.BuildTrigrams(ctx, objects, pool, c.Maintenance.Pause)
		return errors.Join(trigrams, repack.BuildHistories(ctx, objects, pool, c.Maintenance.Pause))
	}, busy, c.Logger)
	// These take many times longer, so that no other pool's bitmaps wait for them.
	auxiliaries := maintain.NewAuxiliaries(func(ctx context.Context, pool odb.PoolID, owner string) error {
		defer histories.Add(pool, owner)
		ctx = c.Processors.Background(ctx, fair.Tenant{Org: owner})
		return repack.BuildAuxiliary(ctx, objects, pool, c.Maintenance.Pause)
	}, busy, c.Logger)
	c.Objects.GrewLarge = auxiliaries.Add
	c.Objects.Reach = packgen.Reachability{}
	c.Objects.Lines, c.Objects.Trigrams = blame.NewLineDiff, grep.StoredTrigrams
	var h *Host
	var joined chan struct{}
	if c.Sharing != nil {
		joined = make(chan struct{})
		c.Objects.Epochs = odb.NewEpochs()
		c.Objects.Servers = &servers{joined: joined, member: func() *cluster.Member { return h.member }}
		c.Objects.Horizon = func(ctx context.Context) (odb.Horizon, error) {
			select {
			case <-joined:
				return h.member.Horizon(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	if c.Objects.RemoteKeys {
		c.Refs.CombineMax = cmp.Or(c.Refs.CombineMax, combineMax)
	}
	objects, err = odb.Open(ctx, c.KV, c.Files, c.Objects)
	if err != nil {
		return nil, fmt.Errorf("open object database: %w", err)
	}
	c.Refs.Shared = c.Refs.Shared || c.Sharing != nil || c.Objects.RemoteKeys
	h = &Host{
		storeID:     id,
		keys:        c.KV,
		files:       c.Files,
		objects:     objects,
		names:       refs.Open(c.KV, c.Refs),
		catalog:     catalog.New(c.KV, decodeRecord),
		recalls:     c.Objects.RemoteKeys,
		removed:     &removal.Sweeper{Keys: c.KV, Leftovers: leftovers, RecordKey: catalog.RecordKey},
		outbox:      outbox.New[*record](c.KV),
		clones:      c.Clones,
		space:       c.Space,
		secrets:     secrets,
		signingKeys: c.SigningKeys,
		keepHistory: c.KeepHistory,
		followOrg:   c.FollowOrg,
		limits:      c.Limits,
		log:         c.Logger,
		tracer:      c.Tracer,
		causes:      newCauses(),
		creations:   newCreations(),
		now:         c.Now,

		traces:   newHistoryCache[traceKey, *revwalk.TracedFolder](c.HistoryBytes / 16 * 7),
		listings: newHistoryCache[listingKey, *commitListing](c.HistoryBytes / 16 * 4),
		changes:  blame.NewChanges(c.HistoryBytes / 16 * 2),
		trigrams: grep.NewTrigrams(c.HistoryBytes / 16 * 2),
		jumps:    revision.NewJumps(c.HistoryBytes / 16),

		maintenance: c.Maintenance,
		worker:      worker,
		auxiliaries: auxiliaries,
		histories:   histories,
		maintaining: make(chan struct{}, 1),
		processors:  c.Processors,
		left:        make(chan struct{}, 1),
		joined:      joined,
	}
	h.quotas = quota.NewLedger(quota.Config{Objects: objects, Limits: c.Quotas, Repositories: h.counted})
	var search time.Duration
	if c.Sharing != nil {
		search = sharedSearch
		h.look = min(sharedSearch, cmp.Or(c.Sharing.Beat, sharedSearch))
	}
	h.openWebhooks(c.Webhooks, c.Version, search, c.Processors)
	h.openUpstreams(c.Upstreams, c.Version)
	if c.Background {
		worker.Start(background{h})
	}
	if c.Upstreams.Enabled {
		h.upstreams.worker.Start(syncHost{h})
	}
	if err := h.begin(ctx, &c); err != nil {
		return nil, errors.Join(err, h.Close(context.WithoutCancel(ctx)))
	}
	if joined != nil {
		close(joined)
	}
	return h, nil
}

// Close ends the host's background work. Requests must have ended.
func (h *Host) Close(ctx context.Context) error {
	h.upstreams.close() // first: what this server does for others to see ends before it leaves them
	err := h.end(ctx)
	h.worker.Stop()
	h.auxiliaries.Close()
	h.histories.Close()
	if h.clones != nil {
		h.clones.Close()
	}
	return errors.Join(err, h.objects.Close(ctx))
}
