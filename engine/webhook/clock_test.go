package webhook_test

import (
	"slices"
	"sync"
	"time"
)

// clock stands still but for the test.
type clock struct {
	mu      sync.Mutex // guards the fields below
	now     time.Time
	waiters []*waiter
}

type waiter struct {
	at  time.Time
	due chan time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) At(at time.Time) (due <-chan time.Time, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &waiter{at, make(chan time.Time, 1)}
	c.waiters = append(c.waiters, w)
	c.fire()
	return w.due, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiters = slices.DeleteFunc(c.waiters, func(other *waiter) bool { return other == w })
	}
}

// fire is called with mu held.
func (c *clock) fire() {
	c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool {
		if w.at.After(c.now) {
			return false
		}
		w.due <- c.now
		return true
	})
}

// timers returns the number of timers that wait.
func (c *clock) timers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiters)
}

func (c *clock) advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
	c.fire()
}

// awaited reports whether a timer waits for exactly that time.
func (c *clock) awaited(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.waiters, func(w *waiter) bool { return w.at.Equal(at) })
}
