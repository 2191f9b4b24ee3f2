package odb

import (
	"context"
	"errors"
	"sync"

	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// Quarantine holds new objects of a pool that nobody sees yet. [Quarantine.Stage] puts them into a batch; when that batch has been
// committed they are part of the pool, and [Quarantine.Close] forgets them otherwise.
//
// Write and its like may be called concurrently with reads of the quarantine's view, not with each other or with Stage.
type Quarantine struct {
	store *Store
	base  *View // stored objects only; owned
	view  *View // base with the quarantine on top

	mu       sync.RWMutex // guards the fields below
	hot      *memoryLayer
	pending  *pendingSegment  // takes writes once the quarantine is too large for the hot tier
	sealed   []*sealedSegment // files that are complete and durable
	layers   []layer          // what is quarantined, in the order in which it is asked
	packed   int64
	count    int
	settled  bool
	staged   bool
	isClosed bool
}

// hotEntry is an object for the hot tier as it is to be stored.
type hotEntry struct {
	ID          object.ID
	Type        object.Type
	Size        int64     // of the object
	Base        object.ID // zero for a whole object; the base is in the pool or in the same quarantine
	ContentSize int64     // of what Payload inflates to: the object, or the delta
	Encoding    Encoding
	Payload     []byte // kept
	Version     uint8  // number in a chain of skip-deltas; 0 for what arrived in a pack
}

// NewQuarantine returns an empty quarantine over the stored objects of v, which stay pinned until it is closed.
func (v *View) NewQuarantine(_ context.Context) *Quarantine {
	base := v.store.newView(v.pool, v.manifest)
	q := &Quarantine{store: v.store, base: base, hot: newMemoryLayer()}
	q.layers = []layer{q.hot}
	q.view = &View{store: base.store, pool: base.pool, manifest: base.manifest, layers: base.layers, quarantine: q}
	return q
}

// View returns a view of the stored and the quarantined objects, those to come included. It ends with the quarantine.
func (q *Quarantine) View() *View { return q.view }

// DropCount is the pool's drop count under which the quarantine's objects are connected: that of the view it was made from, or of the
// last [Quarantine.Refresh].
func (q *Quarantine) DropCount() uint64 { return q.base.DropCount() }

// PackedBytes is the size of what is quarantined, as it is stored.
func (q *Quarantine) PackedBytes() int64 { return 0 }

// Count is the number of objects that are quarantined.
func (q *Quarantine) Count() int { return 0 }

// addHot quarantines an object of a small pack as it came, with its graph row if it is a commit. What the pool already has is skipped.
// The sum of a quarantine must stay within the hot limits; see [Limits.HotBytes].
func (q *Quarantine) addHot(ctx context.Context, entry hotEntry, row *GraphRow) error {
	return errUnfinished
}

// addSegment quarantines a complete segment, which is the quarantine's to register or to remove from here on.
func (q *Quarantine) addSegment(segment *sealedSegment) {}

// Stage puts everything that is quarantined into b, with the preconditions that make it right: the manifest is still the one that was
// read here. It is called once for every try to commit, inside the transaction that also carries the precondition on the repository's
// head: that is what keeps the objects that are found stored here from being added twice.
//
// Errors: [ErrDropped] when connectivity has to be checked again, [ErrManyLayers].
func (q *Quarantine) Stage(ctx context.Context, b *kv.Batch) error { return errUnfinished }

// Refresh moves the quarantine onto the pool as it is now, after [ErrDropped]. The caller checks connectivity again.
func (q *Quarantine) Refresh(ctx context.Context) error { return errUnfinished }

// Settled tells the quarantine that the batch of its last Stage was committed. Files move to their place; if that fails, reads find them
// where they are and the next start moves them.
func (q *Quarantine) Settled(ctx context.Context) {}

// Close forgets what was not committed and removes its files. Only the first call has an effect.
func (q *Quarantine) Close() error { return errUnfinished }

func (q *Quarantine) currentLayers() []layer {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.layers
}

var errUnfinished = errors.New("odb: not there yet")
