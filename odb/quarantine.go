package odb

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"packhorse/odb/bloom"
	"packhorse/odb/file"
	"packhorse/odb/hot"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Quarantine holds new objects of a pool that no other view sees yet. [Quarantine.Stage] puts them
// into a batch. Once that batch has been committed they are part of the pool. Otherwise
// [Quarantine.Close] removes them.
//
// Write and its like, Seal, Refresh and Stage belong to one goroutine at a time; reads of the
// quarantine's view may go on meanwhile.
type Quarantine struct {
	store *Store
	view  *View
	hot   *memoryLayer

	// pending takes writes once the quarantine is too large for the hot tier; nil before that and
	// after Seal.
	pending *pendingSegment
	sealed  []*segment.Sealed
	broken  error // a failure to finish a segment: objects are lost
	staged  bool
	settled bool
	own     bool // it rewrites stored objects
	limit   func(bytes int64) error
	closed  bool
	hotID   segment.LayerID // the layer into which the last Stage put hot objects
	// added are these objects, nil if the layer is not copied, and addedTo the number of additions to
	// it before.
	added   map[object.ID]hot.Row
	addedTo uint64
	// counted is the number of additions to that layer which the last Stage has put, nil for none, and
	// joins says that a batch has the quarantined objects since the last Follow.
	counted   []byte
	joins     bool
	ahead     *ahead     // nil when Refresh and Stage are to read for themselves
	following *following // nil unless others are staged into the same batch before; see Follow
	forgotten int        // how often that ended
	// filters are the path filters of hot commits, nil for a commit without one, and filterBytes are
	// the bytes of trees read for them.
	filters     map[object.ID]bloom.Filter
	filterBytes int64
	// named are the files that checkTree found in its tree.
	named []namedDotfile
	// relied holds objects not written because the pool already had them.
	relied   map[object.ID]struct{}
	arriving arrivingBlobs

	mu    sync.RWMutex // guards the fields below, which readers of the view ask
	base  *View        // of the stored objects; owned
	old   []*View      // bases before a Refresh, which readers may still use; owned
	above []layer      // the layers of quarantined objects, in the order of lookups
	// before are those of other quarantines that are staged into the same batch before.
	before []layer
}

// arrivingBlobs is the part of a quarantine that its [BlobWriter]s share.
type arrivingBlobs struct {
	files      *file.SharedScratch // nil before the first of them
	held       int                 // bytes of their contents in memory
	size       int64               // bytes that count for the limit
	compressed bool                // one of them is compressed while it arrives
}

// NewQuarantine returns an empty quarantine over the stored objects of v, which stay pinned until
// it is closed.
func (v *View) NewQuarantine(_ context.Context) *Quarantine {
	q := &Quarantine{
		store: v.store, hot: newMemoryLayer(v.store), base: v.currentBase(),
		relied: make(map[object.ID]struct{}), limit: v.limit,
	}
	if v.own != nil {
		q.base.setAside(v.own)
	}
	q.base.owner = v.owner
	q.view = &View{store: v.store, pool: v.pool, owner: v.owner, quarantine: q}
	q.above = []layer{q.hot}
	return q
}

// View returns a view of the stored and the quarantined objects, also those quarantined later. It
// ends with the quarantine.
func (q *Quarantine) View() *View { return q.view }

// PruneCount returns the prune generation of the pool as the quarantine sees it: that of the view
// it was made from, or of the last [Quarantine.Refresh].
func (q *Quarantine) PruneCount() uint64 { return q.stored().PruneCount() }

// PackedBytes returns the stored size in bytes of the quarantined objects.
func (q *Quarantine) PackedBytes() int64 {
	total := int64(q.hot.size)
	if q.pending != nil {
		total += q.pending.w.Size()
	}
	for _, segment := range q.sealed {
		total += segment.DataBytes
	}
	return total
}

// Allow returns the error of [View.Limit] for the quarantined objects and so many bytes more.
func (q *Quarantine) Allow(more int64) error {
	if q.limit == nil {
		return nil
	}
	return q.limit(q.PackedBytes() + q.arriving.size + more)
}

// Count returns the number of quarantined objects.
func (q *Quarantine) Count() int {
	total := len(q.hot.order)
	if q.pending != nil {
		total += len(q.pending.ids)
	}
	for _, segment := range q.sealed {
		total += segment.Count
	}
	return total
}

// AddPacked quarantines an object of a small pack in its received form, with its graph row if it is
// a commit. It skips objects that are stored already. The quarantine must stay within the hot
// limits; see [Limits.HotBytes].
func (q *Quarantine) AddPacked(ctx context.Context, value *HotValue, row *GraphRow) error {
	if there, err := q.has(ctx, value.ID); there || err != nil {
		return err
	}
	q.hot.add(value.ID, value.Encode(), row)
	return nil
}

// has reports whether id is stored or quarantined. The quarantine relies on stored objects to stay;
// see revive. It returns false for borrowed objects that a fork may not read; see [View.holds].
func (q *Quarantine) has(ctx context.Context, id object.ID) (bool, error) {
	ok, err := q.view.holds(ctx, id)
	if ok {
		q.rely(id)
	}
	return ok, err
}

// AddSegment quarantines a complete segment. The quarantine now registers or removes its files.
func (q *Quarantine) AddSegment(seg *segment.Sealed) {
	q.sealed = append(q.sealed, seg)
	l := q.store.layers.pin(sealedLayer(seg), true, 0)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.above = append([]layer{l}, q.above...)
}

// Seal makes files durable, and builds the path filters of hot commits. Stage does it, too; an
// earlier call keeps that out of the repository's transaction.
func (q *Quarantine) Seal(ctx context.Context) error {
	if err := q.filterHot(ctx); err != nil {
		return err
	}
	if q.broken != nil || q.pending == nil {
		return q.broken
	}
	pending := q.pending
	q.setPending(nil)
	if len(pending.ids) == 0 {
		return pending.w.Abort()
	}
	segment, err := pending.finish(ctx)
	if err != nil {
		q.broken = fmt.Errorf("seal quarantine: %w", err)
		return q.broken
	}
	q.AddSegment(segment)
	return nil
}

// setPending replaces the segment that takes writes.
func (q *Quarantine) setPending(pending *pendingSegment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	above := make([]layer, 0, len(q.above)+1)
	for _, l := range q.above {
		if _, ok := l.(*pendingSegment); !ok {
			above = append(above, l)
		}
	}
	if pending != nil {
		above = append(above, pending)
	}
	q.pending, q.above = pending, above
}

// Close removes uncommitted objects and their files. Only the first call has an effect.
func (q *Quarantine) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	var err error
	if q.pending != nil {
		err = q.pending.w.Abort()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.above {
		q.store.layers.unpin(l)
	}
	for _, view := range append(q.old, q.base) {
		err = errors.Join(err, view.Close())
	}
	return errors.Join(err, q.removeFiles())
}

// removeFiles removes the files of unregistered segments. A batch may have been committed although
// its caller got an error, so the registration decides.
func (q *Quarantine) removeFiles() error {
	if q.settled {
		return nil
	}
	ctx := context.Background() // cleaning up does not end with the request
	var err error
	for _, seg := range q.sealed {
		if q.staged {
			if ours, _ := q.store.unregister(ctx, seg.ID, segment.FileName(seg.ID)); !ours {
				continue
			}
		}
		err = errors.Join(err, q.store.layers.forget(seg.ID), q.store.Files.Delete(ctx, segment.FileName(seg.ID)))
		if seg.Graph != (segment.LayerID{}) {
			err = errors.Join(err, q.store.Files.Delete(ctx, segment.GraphFile(seg.Graph)))
		}
	}
	return err
}

// layerLists returns the layers of the quarantine, those of others before it in its batch, and the
// stored ones.
func (q *Quarantine) layerLists() [3][]layer {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return [3][]layer{q.above, q.before, q.base.layers}
}

func (q *Quarantine) currentLayers() []layer {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.above
}

// stored returns the view of the stored objects.
func (q *Quarantine) stored() *View {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.base
}
