package cluster

import (
	"context"
	"time"
)

// clockApart is the difference of two clocks that is logged, once until it is below clockClose.
const (
	clockApart = time.Minute
	clockClose = clockApart / 2
)

// clock is that of another server.
type clock struct {
	ahead  time.Duration // of the clock of this server; negative: behind
	logged bool
}

// ClockDifference returns the largest difference between the clock of this server and that of
// another one that lives, by the last row of each; 0 without others. It is not more than the real
// one, but for the time that a batch takes.
func (m *Member) ClockDifference() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.apart
}

// compareClocks looks at the rows that are new since the last look: each was made between the two,
// whose beginning and end are looked and now by the clock of this server. What tells the new rows
// is what observe has not seen yet. looked is zero at the first look, which tells nothing.
func (m *Member) compareClocks(ctx context.Context, rows *storedRows, looked, now time.Time) {
	clocks := make(map[serverID]clock)
	var apart time.Duration
	for id, value := range rows.servers {
		if id == m.id {
			continue
		}
		c := m.clocks[id]
		row, err := decodeServer(value)
		if isNew := m.seen[id].row != string(value); isNew && err == nil && !looked.IsZero() && !row.Time.IsZero() {
			c.ahead = outside(row.Time, looked, now)
			c.logged = m.logClock(ctx, row.URL, c)
		}
		clocks[id] = c
		apart = max(apart, c.ahead.Abs())
	}
	m.clocks = clocks
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apart = apart
}

// logClock logs when the clock of a server begins and ends to differ too much, and reports whether
// it does.
func (m *Member) logClock(ctx context.Context, url string, c clock) bool {
	switch by := c.ahead.Abs(); {
	case !c.logged && by >= clockApart:
		m.Logger.WarnContext(ctx, "the clock of another server differs: synchronize both, grace periods compare them",
			"server", url, "ahead", c.ahead.Round(time.Second).String())
		return true
	case c.logged && by < clockClose:
		m.Logger.InfoContext(ctx, "the clock of another server agrees again", "server", url)
		return false
	}
	return c.logged
}

// outside returns how far a time is behind the end of a period, or, negative, before its beginning.
func outside(at, begin, end time.Time) time.Duration {
	return max(at.Sub(end), 0) + min(at.Sub(begin), 0)
}
