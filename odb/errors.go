package odb

import (
	"errors"
	"sync/atomic"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Errors that a caller decides on.
var (
	// ErrNotFound says that an object is not in the pool, or not readable through it; callers cannot
	// distinguish the two.
	ErrNotFound = errors.New("odb: object not found")
	// ErrNoPool says that there is no pool of that ID.
	ErrNoPool = errors.New("odb: pool not found")
	// ErrCorrupt says that stored bytes failed a check.
	ErrCorrupt = segment.ErrCorrupt
	// ErrTooLarge says that an object exceeds a limit, or the memory that the call may use.
	ErrTooLarge = segment.ErrTooLarge
	// ErrPruned says that objects were pruned from the pool since the connectivity of a quarantine was
	// checked; see [Quarantine.Refresh].
	ErrPruned = errors.New("odb: objects were pruned from the pool meanwhile")
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
	// LoanWalkCount is the number of visibility walks, LoanGrownCount the number of those that began
	// with the visibility set of another fork.
	LoanWalkCount, LoanGrownCount uint64
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
