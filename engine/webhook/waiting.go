package webhook

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
)

// waiting is a stretch of a journal in which events of a ref wait for an earlier one, from From to
// before Until. They are read again when that one has been dealt with: however many there are, they
// take one row.
type waiting struct {
	From  position  `json:"from"`
	Until position  `json:"until"`
	Since time.Time `json:"since"` // nothing in it is older
}

func (w *waiting) isEmpty() bool { return w.From.compare(w.Until) >= 0 }

// count bounds the number of transactions.
func (w *waiting) count() uint64 {
	if w.isEmpty() {
		return 0
	}
	return w.Until.Sequence - w.From.Sequence + 1
}

// Bounds of the events that a lane reads again.
const (
	refillEvents = 50 // of a ref at once
	refilledMax  = lanePages * pageEvents
)

// wait makes an event of the journal wait behind the items of the queue, if it does not yet.
func (q *queue) wait(at position, since time.Time) {
	if !q.waits.isEmpty() && at.compare(q.waits.Until) < 0 {
		return // its page was read before
	}
	if q.waits.isEmpty() {
		q.waits = waiting{From: at, Since: since}
		q.read = at
	}
	q.waits.Until = at.next()
	q.changed = true
}

// pass says that nothing before a position waits any more.
func (q *queue) pass(at position) {
	q.waits.From = at
	q.changed = true
}

// takeWaited says that an event which has waited in the journal does so no more.
func (l *lane) takeWaited(q *queue, it *item) {
	if it.waited {
		it.waited = false
		l.refilled--
		q.pass(it.at.next())
	}
}

// storeWaiting adds the row of what waits in the journal to b, if it has changed. It is as its row
// is once b has been applied.
func (l *lane) storeWaiting(b *kv.Batch, q *queue) {
	if !q.changed {
		return
	}
	l.storedNow = append(l.storedNow, q)
	key := waitingKey(l.id, q.key)
	if q.waits.isEmpty() {
		q.waits = waiting{}
		b.Delete(key)
		return
	}
	l.d.logFailure(l.ctx, "store what waits", put(b, key, q.waits)) // it always encodes
}

// loadWaiting takes up a row of an earlier lane. Errors: errCorrupt.
func (l *lane) loadWaiting(key []byte, row waiting) error {
	ref, err := waitingRef(key)
	if err != nil {
		return err
	}
	q := l.queueOf(ref)
	q.waits, q.read = row, row.From
	l.goOn(q)
	return nil
}

// goOn has the next event of a queue sent, the first one or else one that waits in the journal.
// Without any the queue goes.
func (l *lane) goOn(q *queue) {
	switch {
	case len(q.items) > 0:
		l.list(q)
	case q.waits.isEmpty():
		delete(l.queues, q.key)
	case !q.empty:
		q.empty = true
		l.emptied = append(l.emptied, q)
	}
}

// refill reads what waits for queues that have become empty.
func (l *lane) refill(now time.Time) {
	for len(l.emptied) > 0 && l.refilled < refilledMax && !l.overtaken {
		q := l.emptied[0]
		if err := rescue.Do(func() error { return l.refillInTurn(q, now) }); err != nil {
			l.emptied = append(l.emptied[1:], q)
			l.resumeAt = now.Add(storePause)
			l.d.logFailure(l.ctx, "read the journal of "+q.key.repo.String(), err)
			return
		}
		l.emptied = l.emptied[1:]
		q.empty = false
		l.goOn(q)
	}
}

// refillInTurn reads a page for a queue when it is the organization's turn.
func (l *lane) refillInTurn(q *queue, now time.Time) error {
	return l.withRepository(q.key.repo, func(ctx context.Context, repo *Repository) error {
		b := l.newBatch()
		if err := l.read(ctx, b, q, repo, now); err != nil {
			return err
		}
		l.storeWaiting(b, q)
		l.apply(ctx, b)
		return nil
	})
}

// read reads the next page of the journal for a queue, and takes the events of its ref. The queue
// is as before when that fails. The repository is nil if it has been deleted.
func (l *lane) read(ctx context.Context, b *kv.Batch, q *queue, repo *Repository, now time.Time) error {
	events, next, err := l.readJournal(ctx, b, q.key.repo, repo, q.read, q.waits.Until, now)
	if err != nil {
		return err
	}
	if next != (position{}) {
		q.read = next
		q.pass(next)
		return nil
	}
	end := q.waits.Until
	if next := (position{Sequence: events.Next + 1}); events.More && next.compare(end) < 0 {
		end = next
	}
	count := 0
	for i := range events.Entries {
		entry := &events.Entries[i]
		at := position{entry.Sequence, entry.Index}
		if entry.Ref != q.key.name || at.compare(q.read) < 0 {
			continue
		}
		if at.compare(end) >= 0 {
			break
		}
		if count == refillEvents {
			end = at
			break
		}
		count++
		it := &item{delivery: delivery{Event: newEvent(repo, entry)}, repo: q.key.repo, at: at, settled: true, waited: true}
		it.Since = it.Event.time(now)
		q.items = append(q.items, it)
		l.d.pending.Add(1)
		l.refilled++
	}
	q.read = end
	if count == 0 {
		q.pass(end)
	}
	return nil
}

// dropBehind has everything wait in the journal that comes behind the first event of a queue and is
// not stored.
func (l *lane) dropBehind(q *queue, now time.Time) {
	kept := q.items[:1]
	for _, it := range q.items[1:] {
		switch {
		case it.stored:
			kept = append(kept, it)
			continue
		case it.waited:
			l.refilled--
		default:
			it.settled = true
			q.wait(it.at, it.Event.time(now))
		}
		l.d.pending.Add(-1)
	}
	clear(q.items[len(kept):])
	q.items = kept
	q.read = q.waits.From
}

// isLater reports whether an event comes behind all that the queue has in memory.
func (q *queue) isLater(at position) bool {
	return !slices.ContainsFunc(q.items, func(it *item) bool { return it.at.compare(at) >= 0 })
}

// walkWaiting walks what waits in journals below a prefix of keys, a stretch for each repository,
// from the first to the last of its refs. A damaged row counts as nothing; the lane tells of it.
func walkWaiting(ctx context.Context, keys kv.Store, prefix []byte) iter.Seq2[waiting, error] {
	return func(yield func(waiting, error) bool) {
		var repo []byte
		var all waiting
		for row, err := range scan[waiting](ctx, keys, prefix) {
			if errors.Is(err, errCorrupt) || err == nil && len(row.key) < waitingKeyMin {
				continue
			}
			if err != nil {
				yield(waiting{}, err)
				return
			}
			of := row.key[:waitingKeyMin]
			if bytes.Equal(of, repo) {
				all = all.union(row.row)
				continue
			}
			if repo != nil && !yield(all, nil) {
				return
			}
			repo, all = bytes.Clone(of), row.row
		}
		if repo != nil {
			yield(all, nil)
		}
	}
}

// union is the stretch from the begin of the first to the end of the last.
func (w waiting) union(other waiting) waiting {
	if other.From.compare(w.From) < 0 {
		w.From = other.From
	}
	if other.Until.compare(w.Until) > 0 {
		w.Until = other.Until
	}
	if other.Since.Before(w.Since) {
		w.Since = other.Since
	}
	return w
}
