package ingest

import (
	"context"
	"fmt"
	"io"
	"time"

	"packhorse/odb/fair"
	"packhorse/pack"
)

// busyClock measures the work on a pack, without the time that the sender makes it wait, and ends
// work that takes too long. It is for one goroutine.
type busyClock struct {
	limit  time.Duration
	start  time.Time
	waited time.Duration
	spent  time.Duration // valid once stopped
	checks int
}

// reader starts the clock and returns a reader of r that stops it while it waits.
func (c *busyClock) reader(ctx context.Context, r io.Reader) *timedReader {
	c.start = time.Now()
	return &timedReader{ctx: ctx, clock: c, src: r}
}

// check compares the time with the limit now and then.
func (c *busyClock) check() error {
	const every = 256
	if c.checks++; c.checks%every != 0 || c.busy() < c.limit {
		return nil
	}
	return c.exceeded(c.busy())
}

func (c *busyClock) busy() time.Duration { return time.Since(c.start) - c.waited }

// stop stops the clock.
func (c *busyClock) stop() { c.spent = c.busy() }

// limited returns a context that ends when the remaining time is over.
func (c *busyClock) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.limit-c.spent, c.exceeded(c.limit))
}

func (c *busyClock) exceeded(busy time.Duration) error {
	return fmt.Errorf("the pack takes too long: %w",
		&pack.LimitError{
			Limit: "processing time in seconds", Value: int64(busy / time.Second), Max: int64(c.limit / time.Second),
		})
}

// timedReader waits for the sender. If it is read in a turn, it then waits for another turn.
type timedReader struct {
	ctx   context.Context //nolint:containedctx // of the turn in which it is read
	clock *busyClock
	src   io.Reader
}

func (t *timedReader) Read(p []byte) (n int, err error) {
	start := time.Now()
	err = fair.Rest(t.ctx, func() (err error) {
		n, err = t.src.Read(p)
		return err
	})
	t.clock.waited += time.Since(start)
	return n, err
}
