package webhook

import "time"

// Lag says how far deliveries are behind.
type Lag struct {
	// Untried is the age of the oldest event that was not tried and waits for no other; 0 for none.
	Untried time.Duration
	// Failing is the time since the first attempt at the event that has been retried for longest; 0
	// for none.
	Failing time.Duration
	// HookCount counts the hooks that have had events, LateCount those of them that have had one wait
	// for more than [LateAfter], FailingCount those with an event that is retried.
	HookCount, LateCount, FailingCount int
}

// LateAfter is the age of an untried event from which on its hook is late.
const LateAfter = time.Minute

// laneLag is what a lane knew about its events at a time. The zero value is that of an idle one.
type laneLag struct {
	at               time.Time
	untried, failing time.Duration
}

// lagKept is how long a lag stays as it was measured. One that is older grows with the time, since
// whatever measures it stands still.
const lagKept = 2 * sweepEvery

// grown is a lag that was measured at a time, as it is now.
func (l *laneLag) grown(lag time.Duration, now time.Time) time.Duration {
	if lag <= 0 {
		return 0
	}
	return lag + max(0, now.Sub(l.at)-lagKept)
}

// Lag returns how far the deliveries of this deliverer were behind a minute ago at most. It does
// not block.
func (d *Deliverer) Lag() Lag {
	now := d.Clock.Now()
	var all Lag
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range d.told {
		all.Untried = max(all.Untried, now.Sub(at))
	}
	if !d.hearing.IsZero() {
		all.Untried = max(all.Untried, now.Sub(d.hearing))
	}
	all.HookCount = len(d.lanes)
	for _, l := range d.lanes {
		l.mu.Lock()
		lag := l.lag
		l.mu.Unlock()
		untried, failing := lag.grown(lag.untried, now), lag.grown(lag.failing, now)
		all.Untried, all.Failing = max(all.Untried, untried), max(all.Failing, failing)
		if untried > LateAfter {
			all.LateCount++
		}
		if failing > 0 {
			all.FailingCount++
		}
	}
	return all
}

// askLag has all lanes measure their lag.
func (d *Deliverer) askLag() {
	for _, l := range d.allLanes() {
		l.mu.Lock()
		l.inbox.measure = true
		l.mu.Unlock()
		signal(l.wake)
	}
}

// measure notes the lag of the lane if that was asked for, or if nothing waits any more. Events of
// a hook that is not configured do not count: nothing is going to be sent.
func (l *lane) measure() {
	idle := l.missing || len(l.queues) == 0 && len(l.known) == 0
	if !idle && !l.asked {
		return
	}
	l.asked = false
	var lag laneLag
	if !idle {
		lag = l.lagAt(l.d.Clock.Now())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = lag
}

// lagAt looks at the first event of each ref, and at the repositories whose turn has not come.
func (l *lane) lagAt(now time.Time) laneLag {
	lag := laneLag{at: now}
	for _, q := range l.queues {
		if len(q.items) == 0 {
			lag.untried = max(lag.untried, now.Sub(q.waits.Since), 1)
		} else if it := q.items[0]; it.stored {
			lag.failing = max(lag.failing, now.Sub(it.Since), 1)
		} else {
			lag.untried = max(lag.untried, now.Sub(it.Event.time(now)), 1)
		}
	}
	for id, since := range l.known {
		if l.open[id] == nil {
			lag.untried = max(lag.untried, now.Sub(since), 1)
		}
	}
	return lag
}
