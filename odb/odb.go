// Package odb is the object database: pools of git objects over a key-value store and a store of
// immutable files.
//
// A pool is closed (it holds every object that one of its objects names) and is an ordered list of
// layers, held by its manifest. A hot layer is a key range of small objects; a segment is a file
// whose data region is a valid packfile, followed by its own index. A [View] pins the layers of a
// pool and reads. A [Quarantine] holds objects that no other view sees until [Quarantine.Stage] has
// put them into a batch and that batch was committed, together with the refs that name them.
//
// Start at [Open], then [Store.View]. The map of the package, by file:
//
//	odb, limits, errors, stats       Store and its settings; errors that callers decide on; counts
//	keys, decoder, pool, manifest    tables m, u, s, d; a pool and its list of layers
//	change, sweep                    changes of manifests; deletion of obsolete files
//	rewrite, rewriteprune,           for maintenance: layers replaced by one segment with all of their
//	rewriting, attach                objects or without some; auxiliary files
//	layer, layerset, segmentlayer,   layers and their pins: segments, hot key ranges
//	hotlayer
//	graph, pathfilters, hotfilter,   commit-graph rows, changed-path filters and path histories, wherever
//	changedpaths, pathhistories,     they lie; trigrams of files
//	trigrams, auxiliaryfiles
//	view, opening, chain, spool,     reading: lookup, delta chains, scratch files for large objects
//	prefix, aside, renewal, named
//	stream, blocks, entry,           objects as streams, by range, and in their stored form
//	packedentry
//	quarantine, memorylayer,         objects that are not visible yet, and the batch that makes them visible
//	pendingsegment, stage, refresh,
//	follow
//	write, blob, blobwriter,         writes of the API: skip-deltas, blobs as streams of independent blocks, and
//	dotfile                          the files that git reads by their names
//	fork, mergefrozen, borrowed,     pools that share layers, and the visibility sets of forks
//	visibility, visibilityset,
//	visibilitystored, visibilitywalk,
//	visibilitycarried, reachability
//	fsck and fsck...                 verifies pools, and the rows and files outside of pools
//	registered, hold, usage          the files that pools use, for copies of them; how much they hold
//	register, unregistered           registrations of files; files that have none
//
// Its subfolders import it, except those that it builds on: hot, kv, file, intent, segment, bloom,
// extsort, inorder, lru, fair, space, rescue, traffic. Walks are in revwalk, packs in and out in
// ingest and packgen, maintenance in repack.
//
// Nothing walks for a fork before a request needs the result: who names an object by its ID, or the
// step of maintenance that is about to rewrite the layers of a fork, waits for the walk. So the
// store runs walks itself, one for all who wait, and not by the schedule of maintenance; owners
// take turns at them in a queue of package fair.
//
// No lock guards the content of a pool: a batch has preconditions for everything that it relies on.
// All methods may be called concurrently unless they say otherwise.
package odb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/hot"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/odb/lru"
	"packhorse/odb/segment"
	"packhorse/odb/traffic"
	"packhorse/pack/object"
)

// Options are the settings of [Open]. The zero value works.
type Options struct {
	// CacheBytes is the budget for index blocks, delta bases, trees and commits; 256 MiB when 0.
	CacheBytes int64
	// HotCopyBytes is the part of CacheBytes for copies of hot layers; an eighth when 0, no copies
	// when negative.
	HotCopyBytes int64
	// RemoteKeys says that each read of the key-value store is a round trip over a network, for all
	// processes that share it. Hot layers are then copied at the first lookup, otherwise when many
	// were made.
	RemoteKeys bool
	// Servers are the processes that share the store; nil when no other does. Files in a file.Remote
	// are then noted before they are stored, so that [Store.Collect] finds what a killed process has
	// left.
	Servers intent.Servers
	// Epochs counts the views for other processes that share the store; nil when there are none.
	Epochs *Epochs
	// Horizon returns the present instant for [Store.Sweep]; nil when no other process shares the
	// store.
	Horizon func(ctx context.Context) (Horizon, error)
	// IngestMemoryBytes bounds the memory for the resolution of one incoming pack; 128 MiB when 0.
	IngestMemoryBytes int64
	// OpenFileCountMax bounds the open segment files; 256 when 0.
	OpenFileCountMax int
	// AuxiliaryCount is the number of objects of a new segment from which GrewLarge is called; 20,000
	// when 0.
	AuxiliaryCount int
	// CoverCount is the number of commits up to which a fetch with haves is answered by walking; for
	// more of them bitmaps are used. 2,000 when 0; always bitmaps when negative.
	CoverCount int
	// Reach computes visibility sets. Without it, reading an ID through a fork fails if no readable
	// object names it.
	Reach Reach
	// HistoryCommits is the number of commits of a segment that changed a file from which the file has
	// a path history: a blame compares fewer versions in some tens of milliseconds. HistorySegment is
	// the number of commits from which a segment has any. They are 64 and 1,024 when both are 0.
	HistoryCommits, HistorySegment int
	// HistoryChanges bounds the changes of paths of a segment that has path histories, beside 16 for
	// each commit; 1,048,576 when 0. They take 96 bytes each of a scratch file.
	HistoryChanges int
	// Lines makes what compares versions of files for path histories; nil when they are to have no
	// lines.
	Lines func() LineDiff
	// TrigramBytes is the size of the newest files of a segment from which their trigrams are
	// stored; 8 MiB when 0: a search reads less in some tens of milliseconds. Trigrams returns
	// those of a text, in a form of its own, or nothing for a text that a search has to read; nil
	// when none are stored.
	TrigramBytes int64
	Trigrams     func(text []byte) []byte
	// Limits bound objects and packs.
	Limits Limits
	// Now is the clock for the age of obsolete entries; time.Now when nil.
	Now func() time.Time
	// GrewLarge is called with a pool that got a segment of AuxiliaryCount objects or more, for which
	// bitmaps and path filters are worth building, and its owner. The writer calls it, so it must not
	// wait. It may be nil.
	GrewLarge func(pool PoolID, owner string)
	// Grew is called with the size of each write to a pool. The writer calls it, so it must not wait.
	// It may be nil.
	Grew func(pool PoolID, by Growth)
	// Logger logs corruption and leftovers; silent when nil.
	Logger *slog.Logger
}

// Store holds the pools of a key-value store and a file store.
type Store struct {
	keys    kv.Store
	Files   file.Store
	intents *intent.Files // the same; nil where files need no intents
	options Options
	limits  Limits
	log     *slog.Logger
	env     *segment.Env // of the files of layers
	layers  *layerSet
	copies  *hot.Copies                 // nil: none
	known   lru.Cache[PoolID, manifest] // that were read last, perhaps not the present ones
	counts  counters
	damage  *segment.DamageLog
	traffic traffic.Requests // the open views, except those with a private cache

	claims sync.Map // of auxiliary files that are being made, each a claim

	visibility *visibilityCache // visibility sets of forks
	rewriting  rewriting        // pools that maintenance works on
	removal    sync.RWMutex     // held shared to keep every file, exclusively to delete one
	settlers   sync.WaitGroup   // move registered files to their place
	departed   departed         // what a sweep waits for

	walks   sync.WaitGroup  // visibility walks
	closing context.Context // ends with the store
	close   context.CancelFunc
}

const (
	// knownBytes is the budget of the manifests in memory.
	knownBytes = 4 * mebibyte
	// hotCopyMax is the size from which a hot layer is not copied: twice that at which maintenance
	// flushes it.
	hotCopyMax = 32 * mebibyte
)

// Open returns the pools of keys and files. In a file store that is [file.Incoming] it removes
// segment files that this server left behind without a registration, and moves registered ones to
// their place; both affect only the server's own folder.
//
// The caller closes keys and files after [Store.Close].
func Open(ctx context.Context, keys kv.Store, files file.Store, options Options) (*Store, error) {
	options.setDefaults()
	cache, err := segment.NewCache(options.CacheBytes - max(0, options.HotCopyBytes))
	if err != nil {
		return nil, err
	}
	s := &Store{
		keys:    keys,
		Files:   files,
		options: options,
		limits:  options.Limits,
		log:     options.Logger,

		known:      lru.New[PoolID, manifest](knownBytes, knownBytes),
		visibility: newVisibilityCache(int(options.CacheBytes / 8)),
	}
	s.damage = segment.NewDamageLog(options.Logger, s.isUsed)
	if options.HotCopyBytes > 0 {
		s.copies = hot.NewCopies(keys, hot.Options{
			BytesMax: options.HotCopyBytes, LayerBytesMax: hotCopyMax, Remote: options.RemoteKeys,
			Damaged: func(layer segment.LayerID, err error) { _ = s.damaged(layer, object.ZeroID, err) },
		})
	}
	if rewinder, ok := keys.(kv.Rewinder); ok && s.copies != nil {
		rewinder.OnRewind(s.copies.Clear)
	}
	s.closing, s.close = context.WithCancel(context.WithoutCancel(ctx))
	if remote := file.AsRemote(files); remote != nil && options.Servers != nil {
		s.intents = intent.Open(keys, files, remote, options.Servers, options.Logger)
		s.Files = s.intents
	}
	s.env = &segment.Env{Files: s.Files, Cache: cache, Damage: s.damage, Log: options.Logger}
	s.layers = newLayerSet(s, options.OpenFileCountMax)
	if err := s.clearLeftovers(ctx); err != nil {
		s.close()
		s.endIntents()
		return nil, fmt.Errorf("clear leftovers: %w", err)
	}
	return s, nil
}

// Close cancels or awaits work in the background and closes the open files. Views and quarantines
// must have been closed.
func (s *Store) Close(context.Context) error {
	s.close()
	s.walks.Wait()
	s.settlers.Wait()
	s.endIntents()
	return s.layers.close()
}

// Busy reports whether the store serves requests.
func (s *Store) Busy() bool { return s.traffic.Busy() }

// NewPacer returns a pacer of background work, which rests for a share of its time, pause.
func (s *Store) NewPacer(pause float64) *traffic.Pacer { return traffic.NewPacer(&s.traffic, pause) }

// Options returns the settings in force, including defaults.
func (s *Store) Options() Options { return s.options }

// Env returns the services that the files of layers are read and written with.
func (s *Store) Env() *segment.Env { return s.env }

// Limits returns the limits in force, including defaults.
func (s *Store) Limits() Limits { return s.limits }

func (o *Options) setDefaults() {
	o.CacheBytes = cmp.Or(o.CacheBytes, 256*mebibyte)
	o.HotCopyBytes = cmp.Or(o.HotCopyBytes, o.CacheBytes/8)
	o.IngestMemoryBytes = cmp.Or(o.IngestMemoryBytes, 128*mebibyte)
	o.OpenFileCountMax = cmp.Or(o.OpenFileCountMax, 256)
	o.AuxiliaryCount = cmp.Or(o.AuxiliaryCount, 20_000)
	o.CoverCount = cmp.Or(o.CoverCount, 2000)
	if o.HistoryCommits == 0 && o.HistorySegment == 0 {
		o.HistoryCommits, o.HistorySegment = 64, 1024
	}
	o.HistoryChanges = cmp.Or(o.HistoryChanges, 1<<20)
	o.TrigramBytes = cmp.Or(o.TrigramBytes, 8*mebibyte)
	o.Limits.setDefaults()
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// clearLeftovers handles the files that a former run of this server left in its incoming folder, if
// the file store has one.
func (s *Store) clearLeftovers(ctx context.Context) error {
	incoming, ok := s.Files.(file.Incoming)
	if !ok {
		return nil
	}
	for info, err := range incoming.Leftovers(ctx) {
		if err != nil {
			return err
		}
		layer, ok := segment.LayerOfFile(info.Name)
		if !ok {
			continue
		}
		_, err := s.keys.Get(ctx, registrationKey(layer))
		switch {
		case err == nil:
			err = incoming.Settle(ctx, info.Name)
		case errors.Is(err, kv.ErrNotFound):
			s.log.InfoContext(ctx, "removing an unregistered file", "file", info.Name)
			err = s.Files.Delete(ctx, info.Name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", info.Name, err)
		}
	}
	return nil
}
