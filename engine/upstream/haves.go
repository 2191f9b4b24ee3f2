package upstream

import (
	"context"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// haves lists our commits for negotiation, newest first. It leaves out the ancestors of common
// commits. It implements remote.Haves.
type haves struct {
	history *revwalk.Graph
	queue   revwalk.Queue // by date
	open    int           // commits in queue that are not known to be common
	// shared are the advertised objects that this store has. They are sent, their ancestors are
	// not.
	shared map[object.ID]bool
}

// The marks of a commit.
const (
	isMet    = revwalk.MarkSeen   // it was queued
	isTaken  = revwalk.MarkAsked  // it has left the queue, and its parents were met
	isCommon = revwalk.MarkHidden // the far side is known to have it
)

// newHaves begins at tips, commits or not. Memory grows with the commits that are sent.
func newHaves(ctx context.Context, view *odb.View, tips, shared []object.ID) (*haves, error) {
	h := &haves{history: revwalk.NewGraph(view), shared: make(map[object.ID]bool)}
	for _, id := range shared {
		h.shared[id] = true
	}
	for _, id := range slices.Concat(shared, tips) {
		info, err := view.Stat(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("look up tip %s: %w", id, err)
		}
		if info.Type != object.TypeCommit {
			continue
		}
		if err := h.add(ctx, h.history.Number(id), false); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// add queues a commit that was not met before, and notes when one is common.
func (h *haves) add(ctx context.Context, n int32, common bool) error {
	if h.history.Has(n, isMet) {
		if common {
			h.mark(n)
		}
		return nil
	}
	if err := h.history.Load(ctx, n); err != nil {
		return err
	}
	h.history.Set(n, isMet)
	h.queue.Push(n, h.history.Seconds(n))
	if common {
		h.history.Set(n, isCommon)
	} else {
		h.open++
	}
	return nil
}

// mark marks a commit as common, and what was met of its ancestors.
func (h *haves) mark(n int32) {
	pending := []int32{n}
	for len(pending) > 0 {
		n := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if h.history.Has(n, isCommon) {
			continue
		}
		h.history.Set(n, isCommon)
		if !h.history.Has(n, isTaken) {
			h.open--
			continue
		}
		pending = append(pending, h.history.ParentsOf(n)...)
	}
}

// Next returns up to most commits that were not returned yet.
func (h *haves) Next(ctx context.Context, most int) ([]object.ID, error) {
	var next []object.ID
	for h.open > 0 && len(next) < most {
		n := h.queue.Pop()
		id, common := h.history.ID(n), h.history.Has(n, isCommon)
		h.history.Set(n, isTaken)
		if !common {
			h.open--
			next = append(next, id)
		}
		for _, parent := range h.history.ParentsOf(n) {
			if err := h.add(ctx, parent, common || h.shared[id]); err != nil {
				return nil, err
			}
		}
	}
	return next, nil
}

// Common notes that the far side has a commit that Next has returned.
func (h *haves) Common(id object.ID) {
	if n := h.history.Find(id); n >= 0 && h.history.Has(n, isMet) {
		h.mark(n)
	}
}
