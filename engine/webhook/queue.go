package webhook

import (
	"slices"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// refKey says which ref of which repository a queue is of.
type refKey struct {
	repo refs.RepoID
	name string
}

// queue is the events of one ref that are in memory, in their order. When the first one is parked
// all are.
type queue struct {
	key    refKey
	items  []*item // never empty while the lane has the queue
	busy   bool    // the first one is being sent
	listed bool    // the queue is in lane.runnable
}

// item is an event in memory.
type item struct {
	delivery
	repo    refs.RepoID
	at      position
	stored  bool // it has a row of its own: it is parked
	settled bool // the cursor may pass it: it has been dealt with, or is parked
}

// queueOf returns the queue of an event's ref, which is made if need be.
func (l *lane) queueOf(it *item) *queue {
	key := refKey{it.repo, it.Event.Ref}
	q := l.queues[key]
	if q == nil {
		q = &queue{key: key}
		l.queues[key] = q
	}
	return q
}

// enqueue queues an event of the journal behind those of its ref; it is parked if they are.
func (l *lane) enqueue(b *kv.Batch, it *item, now time.Time) {
	q := l.queueOf(it)
	q.items = append(q.items, it)
	l.d.pending.Add(1)
	if q.items[0].stored {
		l.park(b, q, now)
	} else if len(q.items) == 1 {
		l.list(q)
	}
}

// park stores the first event of a queue, as it is now, and all others that are not stored yet.
func (l *lane) park(b *kv.Batch, q *queue, now time.Time) {
	for i, it := range q.items {
		if i > 0 && it.stored {
			continue
		}
		if it.Since.IsZero() {
			it.Since = now
		}
		if !it.stored {
			it.stored, it.settled = true, true
			l.parked++
		}
		l.store(b, kindParked, it)
	}
}

// insert loads a parked event from its row, and puts it in order among those of its ref.
func (l *lane) insert(key []byte, row delivery) error {
	repo, at, err := eventPosition(key)
	if err != nil {
		return err
	}
	it := &item{delivery: row, repo: repo, at: at, stored: true, settled: true}
	q := l.queueOf(it)
	place, found := slices.BinarySearchFunc(q.items, at, func(other *item, at position) int {
		return other.at.compare(at)
	})
	if found {
		return nil
	}
	if q.busy {
		place = max(place, 1)
	}
	q.items = slices.Insert(q.items, place, it)
	l.d.pending.Add(1)
	l.parked++
	return nil
}
