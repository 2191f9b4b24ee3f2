package segment

import (
	"fmt"
	"math"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"

	"packhorse/pack/object"
)

// Cache holds blocks of indexes, inflated objects and deflated ones under one budget in bytes.
//
// It is otter's W-TinyLFU: one pass over a repository (a clone, an fsck) does not push out the
// index blocks and the newest trees that every request reads, as it would with LRU; reads take no
// lock; and entries weigh what they occupy. Evictions run on the goroutine that sets an entry, so
// that no goroutine is without an owner.
type Cache struct {
	entries weighted
	max     int64
}

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
// (section 0), or, with the block NoOrdinal, an object of a hot layer or a deflated one. ID is used
// only for these two; Block is the number of the block or the ordinal.
type CacheKey struct {
	Layer   LayerID
	ID      object.ID
	section SectionKind
	Block   uint32
}

// deflatedForm is a section of no file, for [DeflatedKey].
const deflatedForm SectionKind = math.MaxUint8

// DeflatedKey names the deflated form of an object, wherever it is stored.
func DeflatedKey(id object.ID) CacheKey {
	return CacheKey{ID: id, section: deflatedForm, Block: NoOrdinal}
}

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
	entries, err := otter.New(&otter.Options[CacheKey, CacheEntry]{
		MaximumWeight: uint64(bytes),
		Weigher: func(_ CacheKey, value CacheEntry) uint32 {
			return uint32(min(value.Weight(), math.MaxUint32))
		},
		StatsRecorder: stats.NewCounter(),
		Executor:      func(task func()) { task() },
	})
	if err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	return &Cache{entries: entries, max: bytes}, nil
}

// Get returns an entry, or false if there is none. The caller must not modify its bytes.
func (c *Cache) Get(key CacheKey) (CacheEntry, bool) { return c.entries.GetIfPresent(key) }

// Peek is Get, but does not count as a use of the entry.
func (c *Cache) Peek(key CacheKey) (CacheEntry, bool) {
	found, ok := c.entries.GetEntryQuietly(key)
	return found.Value, ok
}

// Set offers an entry. The cache refuses one that takes more than an eighth of the budget.
func (c *Cache) Set(key CacheKey, value CacheEntry) {
	if int64(len(value.Data)) <= c.max/8 {
		c.entries.Set(key, value)
	}
}

// Stats returns the bytes held, and the counts of hits and misses.
func (c *Cache) Stats() (bytes, hits, misses uint64) {
	counted := c.entries.Stats()
	return c.entries.WeightedSize(), counted.Hits, counted.Misses
}
