package webhook

import (
	"context"
	"errors"
	"slices"
	"time"

	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/pack/invariants"
)

// Times of an attempt that failed.
const (
	backOffFirst = time.Second // a receiver that fails now and then holds up its refs no longer than that
	backOffMax   = time.Hour
)

// backOff returns the time to wait after so many failed attempts.
func backOff(attempts int) time.Duration {
	wait := backOffFirst
	for range attempts - 1 {
		if wait *= 2; wait >= backOffMax {
			return backOffMax
		}
	}
	return wait
}

// attempt is what became of the first event of a queue.
type attempt struct {
	queue *queue
	err   error
}

// dispatch begins attempts.
func (l *lane) dispatch(hook Hook) {
	for l.busy < laneSlots && len(l.runnable) > 0 {
		q := l.runnable[0]
		l.runnable = l.runnable[1:]
		q.listed, q.busy = false, true
		l.busy++
		it := q.items[0]
		rescue.Go(&l.d.ended, func() error { // leave waits for the result
			l.results <- attempt{q, l.guarded(hook, it)}
			return nil
		}, l.panicked)
	}
}

// errNotMade says that an attempt was not made, or not to its end.
var errNotMade = errors.New("the attempt was not made")

// try makes one attempt when there is room for it. Errors: errNotMade when the lane ended before.
func (l *lane) try(hook Hook, it *item) error {
	release, err := l.d.attempts.Acquire(l.ctx, fair.Tenant{Org: l.hook.Org}, 0, 1)
	if err != nil {
		return errNotMade
	}
	defer release()
	if err := l.d.send(l.sending, hook, it); err == nil || l.sending.Err() == nil {
		return err
	}
	return errNotMade
}

// errInternal is the recorded error of an event whose attempt failed inside this server.
var errInternal = errors.New("internal error")

// guarded is try, with panics logged instead of returned.
func (l *lane) guarded(hook Hook, it *item) error {
	err := rescue.Do(func() error { return l.try(hook, it) })
	if _, ok := errors.AsType[*rescue.PanicError](err); ok {
		l.panicked(err)
		return errInternal
	}
	return err
}

func (l *lane) panicked(err error) {
	l.log.ErrorContext(l.ctx, "webhook: panic", "error", err)
}

// complete takes note of what became of an attempt.
func (l *lane) complete(a attempt) {
	q, it := a.queue, a.queue.items[0]
	q.busy = false
	l.busy--
	if invariants.Enabled {
		invariants.Check(l.busy >= 0 && l.busy < laneSlots, "webhook: %d attempts are under way", l.busy)
	}
	now := l.d.Clock.Now()
	b := l.newBatch()
	switch {
	case a.err == nil:
		l.d.delivered.Add(1)
		l.settle(b, q)
	case errors.Is(a.err, errNotMade):
		return
	default:
		l.d.failed.Add(1)
		it.Attempts++
		it.Error = a.err.Error()
		if it.Since.IsZero() {
			it.Since = now
		}
		if now.Sub(it.Since) >= l.d.GiveUp {
			it.Died = now
			l.store(b, kindDead, it)
			l.d.dead.Add(1)
			l.log.WarnContext(l.ctx, "webhook: gave up an event", "delivery", deliveryID(it.repo, it.at),
				"attempts", it.Attempts, "error", it.Error)
			l.settle(b, q)
			break
		}
		it.Next = now.Add(backOff(it.Attempts))
		if it.Attempts == 1 {
			l.log.WarnContext(l.ctx, "webhook: failed to deliver an event, it will be retried",
				"delivery", deliveryID(it.repo, it.at), "error", it.Error)
		}
		l.park(b, q, now)
	}
	// It fails as the storing does: only when the lane ends.
	_ = l.inTurn(it.Event.Repository.URL, func(ctx context.Context) error {
		l.advance(ctx, b, it.repo)
		return nil
	})
}

// settle takes the first event out of a queue: it has been dealt with.
func (l *lane) settle(b *kv.Batch, q *queue) {
	it := q.items[0]
	q.items = slices.Delete(q.items, 0, 1)
	it.settled = true
	l.d.pending.Add(-1)
	if it.stored {
		b.Delete(eventKey(kindParked, l.id, it.repo, it.at))
		l.parked--
	}
	if invariants.Enabled {
		invariants.Check(l.parked >= 0 && l.refilled >= 0 && l.d.pending.Load() >= 0,
			"webhook: %d events are parked, %d were read again, %d are in memory", l.parked, l.refilled, l.d.pending.Load())
	}
	l.takeWaited(q, it)
	if len(q.items) == 0 && !q.waits.isEmpty() && q.read.compare(q.waits.Until) >= 0 {
		q.pass(q.waits.Until)
	}
	l.storeWaiting(b, q)
	l.goOn(q)
}

// store adds the row of an event. It is small, and always encodes.
func (l *lane) store(b *kv.Batch, kind byte, it *item) {
	l.d.logFailure(l.ctx, "store an event", put(b, eventKey(kind, l.id, it.repo, it.at), it.delivery))
}
