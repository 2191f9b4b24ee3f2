// Package clonecache keeps generated packs, so that equal fetches cost one generation.
//
// Start at [Open], which gives a [Cache]. A request takes two steps: [Cache.Lookup] finds the pack
// that is stored or being generated, and otherwise reserves its key. The holder of the
// [Reservation] decides whether the pack is worth storing, and generates it; requests with the same
// key wait for that decision. A pack is found by its [Key], which holds everything that determines
// its bytes; entries need no other invalidation. While a pack is generated it is a flight: its
// requests read behind the writer, from the file, so that the pace of one client is not that of
// another. The completed pack is kept until it is evicted as least recently used.
//
// All files lie in one folder, which may be deleted at any time, even while it is in use: missing
// and damaged packs are generated again. Nothing is synced. Every block is verified before it is
// sent. A file from before the last start is verified as a whole before its first block is sent.
//
// The map of the package, by file:
//
//	clonecache     the cache: what is stored, being generated and reserved; eviction
//	reservation    the right to generate the pack of a key
//	flight         a pack from its reservation to its last reader
//	pack           a found pack, and sending it
//	stored, tail   stored packs; the format and checksums of their files
package clonecache

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/lru"
)

// ErrUnsent says that the cache's own files failed before anything of a pack was written: the
// caller generates the pack without the cache.
var ErrUnsent = errors.New("clonecache: nothing was sent")

// Key is a hash of everything that decides on the bytes of a pack.
type Key [32]byte

// String is the key in hexadecimal digits, which is also the name of its file.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Generate writes a pack to w and passes lines for the client to tell. It stops when ctx ends.
type Generate func(ctx context.Context, w io.Writer, tell func(string)) error

// Options adjusts a cache.
type Options struct {
	// FS holds the folder; nil is the file system of the machine.
	FS vfs.FS
	// BudgetBytes bounds the files; 10 GiB when 0. A pack of more than a quarter of it is not kept.
	BudgetBytes int64
	// CostMin is the shortest time from a reservation to the end of the generation for which a pack is
	// kept; 5 ms when 0; negative keeps all packs.
	CostMin time.Duration
	Logger  *slog.Logger
}

const (
	defaultBudget = 10 << 30
	defaultCost   = 5 * time.Millisecond
	// entryCountMax bounds the files of the folder, and so the time of a start and the memory of the
	// list (200 bytes each).
	entryCountMax = 16 << 10
)

// Cache is a folder of packs. Its methods may be called concurrently.
type Cache struct {
	fs          vfs.FS
	dir         string
	budgetBytes int64
	costMin     time.Duration
	log         *slog.Logger

	ctx     context.Context // of all generations
	cancel  context.CancelFunc
	running sync.WaitGroup // reservations and generations

	mu      sync.Mutex            // guards the fields below, and the users of each flight
	stored  lru.List[Key, *entry] // packs by the order of their last use
	flights map[Key]*flight       // reserved, or being generated
	growing int64                 // bytes of flights
	flown   uint64                // flights so far, which makes the names of their files different
	stats   Stats
	closed  bool
}

// Stats are counters of a cache.
type Stats struct {
	Hits      uint64 // packs sent from files
	Joined    uint64 // requests that joined a flight
	Generated uint64 // packs whose generation was begun
	Damaged   uint64 // files that failed a check or were missing
	Evicted   uint64 // files that made room
	Count     int    // files that are kept
	Bytes     int64  // of them and of flights
	Waiting   int    // requests that wait for the holder of a reservation
}

// Open opens the cache in dir, which it creates if needed. Files of earlier processes are used if
// they pass their checks.
func Open(dir string, o Options) (*Cache, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.BudgetBytes == 0 {
		o.BudgetBytes = defaultBudget
	}
	if o.CostMin == 0 {
		o.CostMin = defaultCost
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cache{
		fs: o.FS, dir: dir, budgetBytes: o.BudgetBytes, costMin: o.CostMin, log: o.Logger,
		flights: make(map[Key]*flight),
	}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("open clone cache %s: %w", dir, err)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// load lists the files that are there, the oldest first in line for eviction, and removes those of
// unfinished flights.
func (c *Cache) load() error {
	if err := c.fs.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	names, err := c.fs.List(c.dir)
	if err != nil {
		return err
	}
	found := make([]foundEntry, 0, len(names))
	for _, name := range names {
		path := c.fs.PathJoin(c.dir, name)
		if strings.HasSuffix(name, flightMark) {
			if err := c.fs.Remove(path); err != nil {
				return err
			}
			continue
		}
		e := &entry{}
		if n, err := hex.Decode(e.key[:], []byte(name)); err != nil || n != len(e.key) || name != e.key.String() {
			continue // not ours
		}
		info, err := c.fs.Stat(path)
		if err != nil {
			continue // deleted since
		}
		e.fileSize = info.Size()
		found = append(found, foundEntry{e, info.ModTime()})
	}
	slices.SortFunc(found, func(a, b foundEntry) int { return a.time.Compare(b.time) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range found {
		c.keep(f.entry)
	}
	c.makeRoom()
	return nil
}

// Close cancels the generations, whose readers fail, and waits for them and for the holders of
// reservations.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
}

// Clear removes every stored pack. Those that are being read or generated are not disturbed.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e, ok := c.stored.Oldest(); ok; _, e, ok = c.stored.Oldest() {
		c.remove(e)
	}
}

// EntryBytesMax returns the size of the largest pack that is kept.
func (c *Cache) EntryBytesMax() int64 { return c.budgetBytes / 4 }

// Stats returns the counters of the cache.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Count, s.Bytes = c.stored.Len(), c.stored.Bytes()+c.growing
	for _, f := range c.flights {
		if f.cancel == nil {
			s.Waiting += f.users - 1
		}
	}
	return s
}

// Lookup finds the pack of a key. It returns the pack if it is stored or being generated, which the
// caller sends; otherwise a reservation of the key, which the caller ends. While another request
// has the reservation, Lookup waits for its decision, and tell, which may be nil, receives the
// lines that the holder tells. It returns neither pack nor reservation when the holder has
// declined, the cache is closed, or the stored pack cannot be opened: the caller then generates the
// pack for itself.
//
// Errors: that of ctx.
func (c *Cache) Lookup(ctx context.Context, key Key, tell func(string)) (*Pack, *Reservation, error) {
	for {
		e, f, r := c.enter(key)
		switch {
		case e != nil:
			pack, err := c.open(ctx, e)
			switch {
			case errors.Is(err, errFile):
				return nil, nil, nil // the server is short of descriptors
			case !errors.Is(err, errDamaged):
				return pack, nil, err
			}
			c.discard(e, err)
		case f != nil:
			pack, decided, err := f.join(ctx, tell)
			if decided || err != nil {
				return pack, nil, err
			}
		default:
			return nil, r, nil
		}
	}
}

// enter finds the stored pack or the flight of a key, of which the caller becomes a user, or
// reserves the key. It returns nothing when the cache is closed.
func (c *Cache) enter(key Key) (*entry, *flight, *Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, nil
	}
	if f := c.flights[key]; f != nil {
		f.users++
		return nil, f, nil
	}
	if e, ok := c.stored.Get(key); ok {
		return e, nil, nil
	}
	return nil, nil, c.reserve(key)
}

func (c *Cache) count(n *uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// discard removes an entry that is damaged or missing, as err says.
func (c *Cache) discard(e *entry, err error) {
	c.log.Warn("cached pack damaged or missing", "key", e.key.String(), "error", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Damaged++
	c.remove(e)
}

// keep lists an entry. The caller holds mu.
func (c *Cache) keep(e *entry) { c.stored.Put(e.key, e, e.fileSize) }

// makeRoom evicts until the budget holds. The caller holds mu.
func (c *Cache) makeRoom() {
	for c.stored.Bytes()+c.growing > c.budgetBytes || c.stored.Len() > entryCountMax {
		_, e, ok := c.stored.Oldest()
		if !ok {
			return
		}
		c.stats.Evicted++
		c.remove(e)
	}
}

// remove forgets an entry and removes its file, which can be read on where it is open. The caller
// holds mu, so that the file is not that of the key's next flight.
func (c *Cache) remove(e *entry) {
	if now, ok := c.stored.Peek(e.key); !ok || now != e {
		return // another one of its key is
	}
	c.stored.Remove(e.key)
	if err := c.fs.Remove(c.path(e.key.String())); err != nil {
		c.log.Debug("failed to remove a cached pack", "error", err)
	}
}

func (c *Cache) path(name string) string { return c.fs.PathJoin(c.dir, name) }
