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

// queue is the events of one ref that are in memory, in their order, and those that wait behind
// them in the journal. While the first one is parked or any wait, later ones have to wait too.
type queue struct {
	key    refKey
	items  []*item // empty only while some wait
	busy   bool    // the first one is being sent
	listed bool    // the queue is in lane.runnable

	waits   waiting
	read    position // the part of it before this is in items
	changed bool     // it is not as its row is
	empty   bool     // the queue is in lane.emptied
}

func (q *queue) isBlocked() bool {
	return !q.waits.isEmpty() || len(q.items) > 0 && q.items[0].stored
}

// item is an event in memory.
type item struct {
	delivery
	repo    refs.RepoID
	at      position
	stored  bool // it has a row of its own: it is parked
	settled bool // the cursor may pass it: it has been dealt with, is parked or waits
	waited  bool // it is of what waits in the journal
}

func (it *item) key() refKey { return refKey{it.repo, it.Event.Ref} }

// queueOf returns the queue of a ref, which is made if need be.
func (l *lane) queueOf(key refKey) *queue {
	q := l.queues[key]
	if q == nil {
		q = &queue{key: key}
		l.queues[key] = q
	}
	return q
}

// enqueue queues an event of the journal behind those of its ref, or has it wait in the journal.
// The caller stores what waits for the queue.
func (l *lane) enqueue(it *item, now time.Time) *queue {
	q := l.queueOf(it.key())
	if q.isBlocked() {
		it.settled = true
		if q.isLater(it.at) {
			q.wait(it.at, it.Event.time(now))
		}
		return q
	}
	q.items = append(q.items, it)
	l.d.pending.Add(1)
	if len(q.items) == 1 {
		l.list(q)
	}
	return q
}

// park stores the first event of a queue, as it is now. The others of the journal wait there.
func (l *lane) park(b *kv.Batch, q *queue, now time.Time) {
	it := q.items[0]
	if it.Since.IsZero() {
		it.Since = now
	}
	if !it.stored {
		it.stored, it.settled = true, true
		l.parked++
	}
	l.takeWaited(q, it)
	l.store(b, kindParked, it)
	l.dropBehind(q, now)
	l.storeWaiting(b, q)
}

// insert loads a parked event from its row, and puts it in order among those of its ref.
func (l *lane) insert(key []byte, row delivery) error {
	repo, at, err := eventPosition(key)
	if err != nil {
		return err
	}
	it := &item{delivery: row, repo: repo, at: at, stored: true, settled: true}
	q := l.queueOf(it.key())
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
