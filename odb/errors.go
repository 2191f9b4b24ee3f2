package odb

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// Facts that a caller decides on.
var (
	// ErrNotFound says that an object is not in the pool, or may not be read through it; the two are not told apart.
	ErrNotFound = errors.New("odb: object not found")
	// ErrNoPool says that there is no pool of that ID.
	ErrNoPool = errors.New("odb: pool not found")
	// ErrCorrupt says that stored bytes failed a check.
	ErrCorrupt = errors.New("odb: stored bytes are corrupt")
	// ErrTooLarge says that an object is over a limit, or over what the call holds in memory.
	ErrTooLarge = errors.New("odb: too large")
	// ErrDropped says that objects were dropped from the pool since a quarantine's connectivity was checked; see [Quarantine.Refresh].
	ErrDropped = errors.New("odb: objects were dropped from the pool meanwhile")
	// ErrManyLayers says that a pool's manifest cannot take another layer before maintenance has merged some.
	ErrManyLayers = errors.New("odb: the pool has too many layers")
	// ErrClosed says that a view or a quarantine was used after it was closed.
	ErrClosed = errors.New("odb: closed")
)

// NotFoundError is [ErrNotFound] with the object that is missing.
type NotFoundError struct{ Object object.ID }

func (e *NotFoundError) Error() string { return "odb: object " + e.Object.String() + " not found" }

// Is reports whether target is [ErrNotFound].
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// CorruptError is [ErrCorrupt] with its evidence. Object is zero when the damage is in an index or a manifest, File is empty when it is not in
// a file.
type CorruptError struct {
	Object object.ID
	Layer  LayerID
	File   string
	Why    string
}

func (e *CorruptError) Error() string {
	place := "layer " + e.Layer.String()
	if e.File != "" {
		place = "file " + e.File
	}
	if e.Object.IsZero() {
		return fmt.Sprintf("odb: %s is corrupt: %s", place, e.Why)
	}
	return fmt.Sprintf("odb: object %s in %s is corrupt: %s", e.Object, place, e.Why)
}

// Is reports whether target is [ErrCorrupt].
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// counters are what [Store.Stats] reports.
type counters struct {
	corrupt   atomic.Uint64
	hotWrites atomic.Uint64
	segments  atomic.Uint64
}

// Stats are counts since [Open].
type Stats struct {
	// CorruptCount is how many reads met bytes that failed a check, and DamageCount how many different things were found to be wrong, which
	// is not more than damageMax. [Store.WholeCheck] makes it less again.
	CorruptCount uint64
	DamageCount  int
	// HotObjectCount and SegmentCount are the objects and the segments that quarantines have staged.
	HotObjectCount, SegmentCount uint64
	// CacheBytes, CacheHits and CacheMisses are those of the one cache.
	CacheBytes, CacheHits, CacheMisses uint64
	// OpenFileCount is how many segment files are open now.
	OpenFileCount int
	// LoanWalkCount is how often it was found out what a fork may read, LoanGrownCount how often from what was known of another one.
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
		CorruptCount:   s.counts.corrupt.Load(),
		DamageCount:    s.damage.count(),
		HotObjectCount: s.counts.hotWrites.Load(),
		SegmentCount:   s.counts.segments.Load(),
		OpenFileCount:  s.layers.openFileCount(),
		LoanWalkCount:  s.loans.walks.Load(),
		LoanGrownCount: s.loans.grown.Load(),
	}
	stats.CacheBytes, stats.CacheHits, stats.CacheMisses = s.cache.stats()
	return stats
}

// corrupt counts and logs stored bytes of layer that failed a check, and returns the error that says so.
func (s *Store) corrupt(layer LayerID, id object.ID, format string, args ...any) error {
	return s.met(&CorruptError{Object: id, Layer: layer, Why: fmt.Sprintf(format, args...)})
}

// met counts damage that a read has met, and logs it the first time.
func (s *Store) met(damage *CorruptError) error {
	s.counts.corrupt.Add(1)
	if s.damage.isNew(damage) {
		attrs := []any{"layer", damage.Layer.String(), "error", damage.Why}
		if damage.File != "" {
			attrs = append(attrs, "file", damage.File)
		}
		if !damage.Object.IsZero() {
			attrs = append(attrs, "object", damage.Object.String())
		}
		s.log.Error("corrupt bytes", attrs...)
	}
	return damage
}

// damageMax bounds the damage that a store remembers.
const damageMax = 10_000

// WholeCheck begins a check of all pools. Its caller calls sound when it has looked at everything
// and has found nothing: damage that was met before, and not since, is forgotten. It has been
// healed, by a maintenance that made a file anew, or a repository that was deleted.
func (s *Store) WholeCheck() (sound func()) {
	begun := s.damage.check()
	return func() { s.damage.forget(begun) }
}

// damageSet is the damage that was met since the store was opened and not found healed.
type damageSet struct {
	mu     sync.Mutex // guards what follows
	set    map[CorruptError]uint64
	checks uint64 // have begun; set has how many there were when damage was met last
}

// isNew takes in damage, and reports whether it was not met before. What does not fit any more is never new.
func (d *damageSet) isNew(damage *CorruptError) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.set[*damage]
	if !known && len(d.set) >= damageMax {
		return false
	}
	if d.set == nil {
		d.set = make(map[CorruptError]uint64)
	}
	d.set[*damage] = d.checks
	return !known
}

// check begins a check, and returns its number.
func (d *damageSet) check() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checks++
	return d.checks
}

// forget drops what was not met since a check began.
func (d *damageSet) forget(check uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.set, func(_ CorruptError, met uint64) bool { return met < check })
}

func (d *damageSet) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.set)
}

// errFormat says that stored bytes are not what their place promises.
var errFormat = errors.New("malformed")

// damaged turns the failed check of stored bytes into a counted [CorruptError]. Other errors, such as those of a file system, stay what
// they are.
func (s *Store) damaged(layer LayerID, id object.ID, err error) error {
	return s.damagedIn("", layer, id, err)
}

// damagedIn is damaged for what lies in a file.
func (s *Store) damagedIn(file string, layer LayerID, id object.ID, err error) error {
	for _, check := range []error{errFormat, pack.ErrCorrupt, delta.ErrCorrupt, delta.ErrTooLarge, object.ErrMalformed} {
		if errors.Is(err, check) {
			return s.met(&CorruptError{Object: id, Layer: layer, File: file, Why: err.Error()})
		}
	}
	return fmt.Errorf("read layer %s: %w", layer, err)
}
