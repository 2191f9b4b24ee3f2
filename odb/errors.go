package odb

import (
	"errors"
	"sync/atomic"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Facts that a caller decides on.
var (
	// ErrNotFound says that an object is not in the pool, or may not be read through it; the two are
	// not told apart.
	ErrNotFound = errors.New("odb: object not found")
	// ErrNoPool says that there is no pool of that ID.
	ErrNoPool = errors.New("odb: pool not found")
	// ErrCorrupt says that stored bytes failed a check.
	ErrCorrupt = segment.ErrCorrupt
	// ErrTooLarge says that an object is over a limit, or over what the call holds in memory.
	ErrTooLarge = segment.ErrTooLarge
	// ErrPruned says that objects were dropped from the pool since a quarantine's connectivity was
	// checked; see [Quarantine.Refresh].
	ErrPruned = errors.New("odb: objects were dropped from the pool meanwhile")
	// ErrManyLayers says that a pool's manifest cannot take another layer before maintenance has
	// merged some.
	ErrManyLayers = errors.New("odb: the pool has too many layers")
	// ErrClosed says that a view or a quarantine was used after it was closed.
	ErrClosed = errors.New("odb: closed")
)

// CorruptError is [ErrCorrupt] with its evidence.
type CorruptError = segment.CorruptError

// NotFoundError is [ErrNotFound] with the object that is missing.
type NotFoundError struct{ Object object.ID }

func (e *NotFoundError) Error() string { return "odb: object " + e.Object.String() + " not found" }

// Is reports whether target is [ErrNotFound].
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// counters are what [Store.Stats] reports.
type counters struct {
	hotWrites atomic.Uint64
	segments  atomic.Uint64
}

// Stats are counts since [Open].
type Stats struct {
	// CorruptCount is how many reads met bytes that failed a check, and DamageCount how many different
	// things were found to be wrong, which is not more than 10,000. [Store.WholeCheck] makes it less
	// again.
	CorruptCount uint64
	DamageCount  int
	// HotObjectCount and SegmentCount are the objects and the segments that quarantines have staged.
	HotObjectCount, SegmentCount uint64
	// CacheBytes, CacheHits and CacheMisses are those of the one cache.
	CacheBytes, CacheHits, CacheMisses uint64
	// OpenFileCount is how many segment files are open now.
	OpenFileCount int
	// LoanWalkCount is how often it was found out what a fork may read, LoanGrownCount how often from
	// what was known of another one.
	LoanWalkCount, LoanGrownCount uint64
}

// Growth is what a write added to a pool.
type Growth struct {
	Owner string // whose the pool is; see [View.For]
	// ObjectCount and HotBytes are objects in the hot tier and the bytes that they take.
	ObjectCount  int
	HotBytes     int64
	SegmentCount int
}

// Stats returns the counts since [Open].
func (s *Store) Stats() Stats {
	stats := Stats{
		CorruptCount:   s.damage.MetCount.Load(),
		DamageCount:    s.damage.KnownCount(),
		HotObjectCount: s.counts.hotWrites.Load(),
		SegmentCount:   s.counts.segments.Load(),
		OpenFileCount:  s.layers.openFileCount(),
		LoanWalkCount:  s.loans.walks.Load(),
		LoanGrownCount: s.loans.grown.Load(),
	}
	stats.CacheBytes, stats.CacheHits, stats.CacheMisses = s.env.Cache.Stats()
	return stats
}

// WholeCheck begins a check of all pools. Its caller calls sound when it has looked at everything
// and has found nothing: damage that was met before, and not since, is forgotten. It has been
// healed, by a maintenance that made a file anew, or a repository that was deleted.
func (s *Store) WholeCheck() (sound func()) {
	return s.damage.BeginCheck()
}

// damaged turns the failed check of stored bytes that lie in no file into a reported
// [CorruptError].
func (s *Store) damaged(layer segment.LayerID, id object.ID, err error) error {
	return s.damage.Wrap("", layer, id, err)
}
