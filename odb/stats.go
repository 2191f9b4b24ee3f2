package odb

import (
	"sync/atomic"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// counters are what [Store.Stats] reports.
type counters struct {
	hotWrites atomic.Uint64
	segments  atomic.Uint64
}

// Stats are counts since [Open].
type Stats struct {
	// CorruptCount is the number of reads that met bytes which failed a check. DamageCount is the
	// number of different damages found, at most 10,000. [Store.WholeCheck] can lower it.
	CorruptCount uint64
	DamageCount  int
	// HotObjectCount and SegmentCount are the numbers of objects and segments that quarantines staged.
	HotObjectCount, SegmentCount uint64
	// CacheBytes, CacheHits and CacheMisses are those of the one cache.
	CacheBytes, CacheHits, CacheMisses uint64
	// OpenFileCount is the number of open segment files.
	OpenFileCount int
	// ViewCount is the number of open views, except those with a private cache.
	ViewCount int64
	// VisibilityWalkCount is the number of visibility walks, VisibilityGrownCount the number of those
	// that began with the visibility set of another fork.
	VisibilityWalkCount, VisibilityGrownCount uint64
}

// Growth is the size of a write to a pool.
type Growth struct {
	Owner string // the owner of the pool; see [View.For]
	// ObjectCount and HotBytes are objects in the hot tier and the bytes that they take.
	ObjectCount  int
	HotBytes     int64
	SegmentCount int
}

// Stats returns the counts since [Open].
func (s *Store) Stats() Stats {
	stats := Stats{
		CorruptCount:         s.damage.MetCount.Load(),
		DamageCount:          s.damage.KnownCount(),
		HotObjectCount:       s.counts.hotWrites.Load(),
		SegmentCount:         s.counts.segments.Load(),
		OpenFileCount:        s.layers.openFileCount(),
		ViewCount:            s.traffic.Count(),
		VisibilityWalkCount:  s.visibility.walks.Load(),
		VisibilityGrownCount: s.visibility.grown.Load(),
	}
	stats.CacheBytes, stats.CacheHits, stats.CacheMisses = s.env.Cache.Stats()
	return stats
}

// WholeCheck begins a check of all pools. A caller that has checked everything and found nothing
// calls sound, which forgets damage that no read has met since: maintenance has made the file anew,
// or the repository was deleted.
func (s *Store) WholeCheck() (sound func()) {
	return s.damage.BeginCheck()
}

// damaged turns the failed check of stored bytes that lie in no file into a reported
// [CorruptError].
func (s *Store) damaged(layer segment.LayerID, id object.ID, err error) error {
	return s.damage.Wrap("", layer, id, err)
}
