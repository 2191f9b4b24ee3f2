package odb

import (
	"fmt"
	"math"

	"github.com/maypok86/otter/v2"
	"github.com/maypok86/otter/v2/stats"

	"packhorse/pack/object"
)

// cache holds blocks of indexes and inflated objects under one budget in bytes.
//
// It is otter's W-TinyLFU: one pass over a repository (a clone, an fsck) does not push out the index blocks and the newest trees that
// every request reads, as it would with LRU; reads take no lock; and entries weigh what they occupy. Evictions run on the goroutine
// that sets an entry, so that no goroutine is without an owner.
type cache struct {
	entries *otter.Cache[cacheKey, cached]
	max     int64
}

// cacheKey names a block of a section of a layer's file, an object at an ordinal of a segment (section 0), or, with the number
// noOrdinal, an object of a hot layer.
type cacheKey struct {
	layer   LayerID
	id      object.ID
	section sectionKind
	block   uint32
}

// cached is a block, or an object with its type. The bytes are shared and never written.
type cached struct {
	data []byte
	kind object.Type
}

// weight is about the memory that an entry takes.
func (c *cached) weight() int64 { return int64(cap(c.data)) + cacheOverhead }

// cacheOverhead is about what an entry costs beside its bytes.
const cacheOverhead = 160

func newCache(bytes int64) (*cache, error) {
	entries, err := otter.New(&otter.Options[cacheKey, cached]{
		MaximumWeight: uint64(bytes),
		Weigher: func(_ cacheKey, value cached) uint32 {
			return uint32(min(value.weight(), math.MaxUint32))
		},
		StatsRecorder: stats.NewCounter(),
		Executor:      func(task func()) { task() },
	})
	if err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	return &cache{entries: entries, max: bytes}, nil
}

func (c *cache) get(key cacheKey) (cached, bool) { return c.entries.GetIfPresent(key) }

// set offers an entry. One that would take more than an eighth of the budget is not taken.
func (c *cache) set(key cacheKey, value cached) {
	if int64(len(value.data)) <= c.max/8 {
		c.entries.Set(key, value)
	}
}

func (c *cache) stats() (bytes, hits, misses uint64) {
	counted := c.entries.Stats()
	return c.entries.WeightedSize(), counted.Hits, counted.Misses
}
