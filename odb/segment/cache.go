package segment

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"

	"packhorse/odb/lru"
	"packhorse/pack/object"
)

// Cache holds blocks of indexes, inflated objects, deflated ones and the folders in trees under one
// budget in bytes.
//
// For blocks and inflated objects it is otter's W-TinyLFU: one pass over a repository (a clone, an
// fsck) does not push out the index blocks and the newest trees that every request reads, as it
// would with LRU; reads take no lock; and entries weigh what they occupy. Evictions run on the
// goroutine that sets an entry, so that no goroutine is without an owner.
//
// The other two are what clones send and walk. With each commit some of them take the place of
// others, which by then have been used often: W-TinyLFU keeps the old ones for a while, and each
// clone computes the new ones again. An LRU holds them, in a part of the budget.
type Cache struct {
	entries weighted
	derived lru.Cache[CacheKey, CacheEntry]
	max     int64 // of entries

	hits, misses atomic.Uint64 // of derived
}

// derivedShare is the part of the budget that deflated objects and folders have at most.
const derivedShare = 4

// weighted is otter's cache. A package compiles the methods of every generic type that it can reach
// through the types it uses, and nearly all of them can reach this field: an interface keeps
// otter's 220 KB of code out of each.
type weighted interface {
	GetIfPresent(key CacheKey) (CacheEntry, bool)
	GetEntryQuietly(key CacheKey) (otter.Entry[CacheKey, CacheEntry], bool)
	Set(key CacheKey, value CacheEntry) (CacheEntry, bool)
	WeightedSize() uint64
	Stats() stats.Stats
}

// CacheKey names a block of a section of a layer's file, an object at an ordinal of a segment
// (section 0), or, with the block NoOrdinal, an object of a hot layer, a deflated one, or the
// folders in a tree. ID is used only for these three; Block is the number of the block or the
// ordinal.
type CacheKey struct {
	Layer   LayerID
	ID      object.ID
	section SectionKind
	Block   uint32
}

// These are sections of no file, for [DeflatedKey] and [FoldersKey].
const (
	deflatedForm SectionKind = math.MaxUint8 - iota
	foldersForm
)

// DeflatedKey names the deflated form of an object, wherever it is stored.
func DeflatedKey(id object.ID) CacheKey {
	return CacheKey{ID: id, section: deflatedForm, Block: NoOrdinal}
}

// FoldersKey names the folders in a tree, wherever the tree is stored.
func FoldersKey(tree object.ID) CacheKey {
	return CacheKey{ID: tree, section: foldersForm, Block: NoOrdinal}
}

// isDerived reports whether the entry is made of an object, and not read from a place.
func (k *CacheKey) isDerived() bool { return k.section >= foldersForm }

// CacheEntry is a block, or an object with its type. Kind is zero for a block. The bytes of Data
// are shared and never written.
type CacheEntry struct {
	Data []byte
	Kind object.Type
}

// Weight returns approximately the memory in bytes that an entry takes.
func (c *CacheEntry) Weight() int64 { return int64(cap(c.Data)) + cacheOverhead }

// cacheOverhead is about what an entry costs beside its bytes.
const cacheOverhead = 160

// NewCache returns a cache with a budget of about that many bytes.
func NewCache(bytes int64) (*Cache, error) {
	derivedMax := bytes / derivedShare
	entries, err := otter.New(&otter.Options[CacheKey, CacheEntry]{
		MaximumWeight: uint64(bytes - derivedMax),
		Weigher: func(_ CacheKey, value CacheEntry) uint32 {
			return uint32(min(value.Weight(), math.MaxUint32))
		},
		StatsRecorder: stats.NewCounter(),
		Executor:      func(task func()) { task() },
	})
	if err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	return &Cache{
		entries: entries, derived: lru.New[CacheKey, CacheEntry](derivedMax, derivedMax/valueShare), max: bytes - derivedMax,
	}, nil
}

// Get returns an entry, or false if there is none. The caller must not modify its bytes.
func (c *Cache) Get(key CacheKey) (CacheEntry, bool) {
	if !key.isDerived() {
		return c.entries.GetIfPresent(key)
	}
	entry, ok := c.derived.Get(key)
	if ok {
		c.hits.Add(1)
	} else {
		c.misses.Add(1)
	}
	return entry, ok
}

// Peek is Get of a block or an inflated object, but does not count as a use of the entry.
func (c *Cache) Peek(key CacheKey) (CacheEntry, bool) {
	found, ok := c.entries.GetEntryQuietly(key)
	return found.Value, ok
}

// valueShare is the part of its budget that one entry has at most.
const valueShare = 8

// Set offers an entry. The cache refuses a large one.
func (c *Cache) Set(key CacheKey, value CacheEntry) {
	if key.isDerived() {
		c.derived.Put(key, value, value.Weight())
	} else if int64(len(value.Data)) <= c.max/valueShare {
		c.entries.Set(key, value)
	}
}

// Stats returns the bytes held, and the counts of hits and misses.
func (c *Cache) Stats() (bytes, hits, misses uint64) {
	counted := c.entries.Stats()
	bytes = c.entries.WeightedSize() + uint64(c.derived.Bytes())
	return bytes, counted.Hits + c.hits.Load(), counted.Misses + c.misses.Load()
}
