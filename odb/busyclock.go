package odb

import (
	"fmt"
	"io"
	"time"

	"packhorse/pack"
)

// busyClock measures how long a pack is worked on, the time that its sender lets us wait left out, and ends work that takes too long. It
// is for one goroutine.
type busyClock struct {
	limit  time.Duration
	start  time.Time
	waited time.Duration
	checks int
}

// reader returns r, timed.
func (c *busyClock) reader(r io.Reader) io.Reader {
	c.start = time.Now()
	return &timedReader{clock: c, src: r}
}

func (c *busyClock) busy() time.Duration { return time.Since(c.start) - c.waited }

// check looks at the time now and then.
func (c *busyClock) check() error {
	const every = 256
	if c.checks++; c.checks%every != 0 || c.busy() < c.limit {
		return nil
	}
	return c.exceeded()
}

// left returns the time that remains.
func (c *busyClock) left() time.Duration { return c.limit - c.busy() }

func (c *busyClock) exceeded() error {
	return fmt.Errorf("the pack takes too long: %w",
		&pack.LimitError{Limit: "processing time in seconds", Value: int64(c.busy() / time.Second), Max: int64(c.limit / time.Second)})
}

type timedReader struct {
	clock *busyClock
	src   io.Reader
}

func (t *timedReader) Read(p []byte) (int, error) {
	start := time.Now()
	n, err := t.src.Read(p)
	t.clock.waited += time.Since(start)
	return n, err
}
