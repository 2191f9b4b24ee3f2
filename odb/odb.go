// Package odb is the object database: pools of git objects over a key-value store and a store of
// immutable files.
//
// A pool is closed (whatever an object names is in it) and is an ordered list of layers, held by
// its manifest. A hot layer is a key range of small objects; a segment is a file whose data region
// is a valid packfile, followed by its own index. A [View] pins the layers of a pool and reads; a
// [Quarantine] holds objects that nobody sees until [Quarantine.Stage] has put them into a batch
// and that batch was committed, together with the refs that name them.
//
// Start at [Open], then [Store.View]. The map of the package, by file:
//
//	odb, limits, errors              Store and its settings; errors that callers decide on
//	keys, decoder, pool, manifest    tables m, o, g, f, u, s, d; a pool and its list of layers
//	change, departure, sweep         changes of manifests; files that no manifest names any more
//	rewrite, rewriteprune,           what maintenance needs: layers replaced by one segment, with all objects
//	attach, pacer                    or without some; auxiliary files; rests while requests are served
//	layer, layerset, segmentlayer,   layers and their pins: segments, hot key ranges
//	hotlayer, hotvalue
//	graph, pathfilters, hotfilter,   commit-graph rows and changed-path filters, wherever they lie
//	changedpaths
//	view, chain, spool, prefix,      reading: lookup, delta chains, scratch files for large objects
//	aside, named
//	stream, blocks, entry,           objects as streams, by range, and as they are stored
//	packedentry
//	quarantine, memorylayer,         objects that are not visible yet, and the batch that makes them visible
//	pendingsegment, stage, revive
//	write, blob, arrival, blockpipe, writes of the API: skip-deltas, blobs as streams of independent blocks, and
//	dotfile                          the files that git reads by their names
//	fork, mergefrozen, borrowed,     pools that share layers, and what of them a fork may read
//	borrowedset, loan, loanwalk,
//	reachability, turns
//	fsck and fsck...                 verifies everything in a pool, and what lies outside of pools
//	registered                       the files that pools use, for copies of them
//
// Its subfolders are above it, but for those that say what it stands on: kv, file, segment, bloom,
// extsort, lru, fair, space, rescue. Walks are in revwalk, packs in and out in ingest and packgen,
// maintenance in repack.
//
// Nothing here is guarded by being alone: what a batch relies on is a precondition in it. All
// methods may be called concurrently unless they say otherwise.
package odb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// Options are the settings of [Open]. The zero value works.
type Options struct {
	// CacheBytes is the budget for index blocks, delta bases, trees and commits; 256 MiB when 0.
	CacheBytes int64
	// IngestMemoryBytes bounds what the resolution of one incoming pack holds in memory; 128 MiB
	// when 0.
	IngestMemoryBytes int64
	// OpenFileCountMax bounds the segment files that are open at once; 256 when 0.
	OpenFileCountMax int
	// AuxiliaryCount is how many objects a new segment has to have for GrewLarge to hear of it; 20,000
	// when 0.
	AuxiliaryCount int
	// CoverCount is how many commits are found by walking for a client that has something; for more of
	// them bitmaps are asked. 2,000 when 0.
	CoverCount int
	// Reach finds what forks may read. Without it a fork that is asked for an ID that nothing readable
	// leads to fails.
	Reach Reach
	// Limits refuse what is too large.
	Limits Limits
	// Now is the clock by which layers wait to be removed; time.Now when nil.
	Now func() time.Time
	// GrewLarge hears of a pool that got a segment of AuxiliaryCount objects or more: bitmaps and path
	// filters are worth making. It is called by the writer and must not wait; nil: nobody hears.
	GrewLarge func(pool PoolID)
	// Grew hears what was written to a pool, once for each write; nil: nobody does. It is called by
	// the writer and must not wait.
	Grew func(pool PoolID, by Growth)
	// Logger hears of corruption and of leftovers; silent when nil.
	Logger *slog.Logger
}

// Store is every pool of a key-value store and a file store.
type Store struct {
	keys    kv.Store
	Files   file.Store
	options Options
	limits  Limits
	log     *slog.Logger
	env     *segment.Env // of the files of layers
	layers  *layerSet
	counts  counters
	damage  *segment.DamageLog
	traffic traffic

	loans     *loans         // what forks may read
	rewriting rewriting      // pools that maintenance works on
	removal   sync.RWMutex   // shared by who needs every file to stay, taken by who removes one
	settlers  sync.WaitGroup // move registered files to their place

	background sync.WaitGroup  // finds out what forks may read
	closing    context.Context // ends with the store
	close      context.CancelFunc
}

// Open returns the pools of keys and files. Segment files that this server left behind without a
// registration are removed, registered ones that lie outside their place are settled; both touch
// only the server's own folder.
//
// The stores stay the caller's to close, after [Store.Close].
func Open(ctx context.Context, keys kv.Store, files file.Store, options Options) (*Store, error) {
	options.setDefaults()
	cache, err := segment.NewCache(options.CacheBytes)
	if err != nil {
		return nil, err
	}
	s := &Store{
		keys:    keys,
		Files:   files,
		options: options,
		limits:  options.Limits,
		log:     options.Logger,
		damage:  segment.NewDamageLog(options.Logger),

		loans: newLoans(int(options.CacheBytes / 8)),
	}
	s.closing, s.close = context.WithCancel(context.WithoutCancel(ctx))
	s.env = &segment.Env{Files: files, Cache: cache, Damage: s.damage, Log: options.Logger}
	s.layers = newLayerSet(s, options.OpenFileCountMax)
	if err := s.clearLeftovers(ctx); err != nil {
		s.close()
		return nil, fmt.Errorf("clear leftovers: %w", err)
	}
	return s, nil
}

// Close ends or waits for work in the background and closes the files that are open. Views and
// quarantines must have been closed.
func (s *Store) Close(context.Context) error {
	s.close()
	s.background.Wait()
	s.settlers.Wait()
	return s.layers.close()
}

// Options returns the settings in force, defaults filled in.
func (s *Store) Options() Options { return s.options }

// Env returns what the files of layers are read and written with.
func (s *Store) Env() *segment.Env { return s.env }

// Limits returns the limits in force, defaults filled in.
func (s *Store) Limits() Limits { return s.limits }

func (o *Options) setDefaults() {
	setDefault(&o.CacheBytes, 256*mebibyte)
	setDefault(&o.IngestMemoryBytes, 128*mebibyte)
	setDefault(&o.OpenFileCountMax, 256)
	setDefault(&o.AuxiliaryCount, 20_000)
	setDefault(&o.CoverCount, 2000)
	o.Limits.setDefaults()
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// clearLeftovers looks at what a former run of this server left in its incoming folder.
func (s *Store) clearLeftovers(ctx context.Context) error {
	for info, err := range s.Files.Leftovers(ctx) {
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
			err = s.Files.Settle(ctx, info.Name)
		case errors.Is(err, kv.ErrNotFound):
			s.log.InfoContext(ctx, "removing a file that nothing was registered for", "file", info.Name)
			err = s.Files.Delete(ctx, info.Name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", info.Name, err)
		}
	}
	return nil
}
