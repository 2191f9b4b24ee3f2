package ingest

import (
	"context"
	"fmt"
	"io"
	"time"

	"packhorse/odb/fair"
	"packhorse/pack"
)

// busyClock measures how long a pack is worked on, the time that its sender lets us wait left out,
// and ends work that takes too long. It is for one goroutine.
type busyClock struct {
	limit  time.Duration
	start  time.Time
	waited time.Duration
	spent  time.Duration // once stopped
	checks int
}

// reader starts the clock and returns r, timed.
func (c *busyClock) reader(ctx context.Context, r io.Reader) *timedReader {
	c.start = time.Now()
	return &timedReader{ctx: ctx, clock: c, src: r}
}

// check looks at the time now and then.
func (c *busyClock) check() error {
	const every = 256
	if c.checks++; c.checks%every != 0 || c.busy() < c.limit {
		return nil
	}
	return c.exceeded(c.busy())
}

func (c *busyClock) busy() time.Duration { return time.Since(c.start) - c.waited }

// stop ends the clock's time.
func (c *busyClock) stop() { c.spent = c.busy() }

// limited returns a context that ends when the rest of the time is over.
func (c *busyClock) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.limit-c.spent, c.exceeded(c.limit))
}

func (c *busyClock) exceeded(busy time.Duration) error {
	return fmt.Errorf("the pack takes too long: %w",
		&pack.LimitError{
			Limit: "processing time in seconds", Value: int64(busy / time.Second), Max: int64(c.limit / time.Second),
		})
}

// timedReader waits for the sender, and for another turn afterwards if it is read within one.
type timedReader struct {
	ctx   context.Context //nolint:containedctx // the one of the turn in which it is read
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
