package upstream

import (
	"container/heap"
	"context"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/pack/object"
)

// haves lists our commits for negotiation, newest first. It leaves out the ancestors of common
// commits. It implements remote.Haves.
type haves struct {
	view  *odb.View
	queue commitQueue
	met   map[object.ID]*queued
	open  int // commits in queue that are not known to be common
	// shared are the advertised objects that this store has. They are sent, their ancestors are
	// not.
	shared map[object.ID]bool
}

// newHaves begins at tips, commits or not. Memory grows with the commits that are sent.
func newHaves(ctx context.Context, view *odb.View, tips, shared []object.ID) (*haves, error) {
	h := &haves{view: view, met: make(map[object.ID]*queued), shared: make(map[object.ID]bool)}
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
		if err := h.add(ctx, id, false); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// add queues a commit that was not met before, and notes when one is common.
func (h *haves) add(ctx context.Context, id object.ID, common bool) error {
	c, ok := h.met[id]
	if ok {
		if common {
			h.mark(c)
		}
		return nil
	}
	row, err := h.view.Graph(ctx, id)
	if err != nil {
		return fmt.Errorf("look up commit %s: %w", id, err)
	}
	c = &queued{id: id, row: row, waits: true, common: common}
	h.met[id] = c
	heap.Push(&h.queue, c)
	if !common {
		h.open++
	}
	return nil
}

// mark marks a commit as common. The parents of a commit that left the queue are in the map; they
// are common, too.
func (h *haves) mark(c *queued) {
	pending := []*queued{c}
	for len(pending) > 0 {
		c := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if c.common {
			continue
		}
		c.common = true
		if c.waits {
			h.open--
			continue
		}
		for _, parent := range c.row.Parents {
			pending = append(pending, h.met[parent])
		}
	}
}

// Next returns up to most commits that were not returned yet.
func (h *haves) Next(ctx context.Context, most int) ([]object.ID, error) {
	var next []object.ID
	for h.open > 0 && len(next) < most {
		c := heap.Pop(&h.queue).(*queued)
		c.waits = false
		if !c.common {
			h.open--
			next = append(next, c.id)
		}
		for _, parent := range c.row.Parents {
			if err := h.add(ctx, parent, c.common || h.shared[c.id]); err != nil {
				return nil, err
			}
		}
	}
	return next, nil
}

// Common notes that the far side has a commit that Next has returned.
func (h *haves) Common(id object.ID) {
	if c, ok := h.met[id]; ok {
		h.mark(c)
	}
}

// queued is a commit that was met.
type queued struct {
	id     object.ID
	row    odb.GraphRow
	waits  bool // for its turn
	common bool // the far side is known to have it
}

// commitQueue is a heap of commits, the newest first.
type commitQueue []*queued

func (q commitQueue) Len() int           { return len(q) }
func (q commitQueue) Less(i, k int) bool { return q[i].row.Seconds > q[k].row.Seconds }
func (q commitQueue) Swap(i, k int)      { q[i], q[k] = q[k], q[i] }

// Push implements [heap.Interface].
func (q *commitQueue) Push(x any) { *q = append(*q, x.(*queued)) }

// Pop implements [heap.Interface].
func (q *commitQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
