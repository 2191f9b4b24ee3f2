package odb

import (
	"context"
	"errors"
	"slices"

	"packhorse/odb/hot"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// ErrUncommitted means that a quarantine which builds on others of its batch cannot do what it was
// asked for. Without them, after [Quarantine.Follow] of none, it can.
var ErrUncommitted = errors.New("odb: not on top of objects that are not committed")

// following is what a quarantine knows of others that are staged into the same batch before it.
type following struct {
	layers []layer // their objects, those of the last one first
	// count is the number of additions to a hot layer that the last of them has put, by layer.
	count map[segment.LayerID][]byte
	// hot is how many objects the quarantine had before, and relied are the objects on which it has
	// relied since.
	hot    int
	relied []object.ID
}

// Follow makes the quarantine build on others of its pool that have been staged into the same batch
// before it, in this order: its view shows their objects, and Stage adds none of these again. What
// it quarantined while it followed others before is gone: nobody knows whether they were committed.
// The call comes before Refresh.
//
// It returns false if the quarantine or one of the others has a segment, which changes the manifest
// of the pool; it then follows nobody.
func (q *Quarantine) Follow(before []*Quarantine) bool {
	q.forget()
	if len(before) == 0 {
		return true
	}
	if q.closed || q.pending != nil || len(q.sealed) > 0 {
		return false
	}
	f := &following{hot: len(q.hot.order), count: make(map[segment.LayerID][]byte)}
	for _, other := range slices.Backward(before) {
		if other.pending != nil || len(other.sealed) > 0 || other.stored().pool != q.stored().pool {
			return false
		}
		if !other.joins {
			continue
		}
		f.layers = append(f.layers, other.hot)
		if _, later := f.count[other.hotID]; !later && other.counted != nil {
			f.count[other.hotID] = other.counted
		}
	}
	q.following = f
	q.mu.Lock()
	defer q.mu.Unlock()
	q.before = f.layers
	return true
}

// Forgotten returns how often Follow has taken back what was quarantined: who keeps IDs of objects
// that it has written compares.
func (q *Quarantine) Forgotten() int { return q.forgotten }

// forget takes the quarantine back to where it was before it followed others.
func (q *Quarantine) forget() {
	f := q.following
	q.joins, q.counted = false, nil
	if f == nil {
		return
	}
	q.following = nil
	q.forgotten++
	q.mu.Lock()
	q.before = nil
	q.mu.Unlock()
	for _, id := range q.hot.cut(f.hot) {
		delete(q.filters, id)
	}
	for _, id := range f.relied {
		delete(q.relied, id)
	}
}

// rely notes that the quarantine did not write an object because it is there.
func (q *Quarantine) rely(id object.ID) {
	if _, known := q.relied[id]; known {
		return
	}
	q.relied[id] = struct{}{}
	if q.following != nil {
		q.following.relied = append(q.following.relied, id)
	}
}

// holdsBefore reports whether a quarantine of the same batch has an object.
func (q *Quarantine) holdsBefore(ctx context.Context, id object.ID) (bool, error) {
	if q.following == nil {
		return false, nil
	}
	for _, l := range q.following.layers {
		if _, ok, err := l.find(ctx, id); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// countBefore returns the number of additions to a layer, and its stored form, as the batch of a
// quarantine is to find them: as stored, or as those before it in the batch have put them.
func (q *Quarantine) countBefore(layer segment.LayerID, count uint64, stored []byte) (uint64, []byte, error) {
	if q.following == nil || q.following.count[layer] == nil {
		return count, stored, nil
	}
	stored = q.following.count[layer]
	count, err := hot.DecodeCount(layer, stored)
	return count, stored, err
}
