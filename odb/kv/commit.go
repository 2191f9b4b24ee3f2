package kv

import (
	"context"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"packhorse/pack/invariants"
)

// commit is a batch that is visible, or about to be, and its way to the disk.
type commit struct {
	batch   *pebble.Batch
	written stripeSet
	done    chan struct{}   // closed when the batch is durable
	failed  <-chan struct{} // closed when the store has failed
	block   Block
}

// Wait implements Commit.
func (c *commit) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	return c.block.Run(ctx, func() error {
		select {
		case <-c.done:
			return nil
		case <-c.failed:
			return ErrFailed
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// durable is the commit of an empty batch.
type durable struct{}

// Wait implements Commit.
func (durable) Wait(context.Context) error { return nil }

// announce makes c known to waiters for its keys. It precedes the application of the batch: a
// reader that sees the writes of the batch finds the commit here.
func (s *stripes) announce(c *commit) {
	c.written.each(func(i int) bool {
		t := &s.list[i]
		t.mu.Lock()
		t.unsynced = append(t.unsynced, c)
		t.mu.Unlock()
		return true
	})
}

// settle removes c, which is durable.
func (s *stripes) settle(c *commit) {
	c.written.each(func(i int) bool {
		t := &s.list[i]
		t.mu.Lock()
		at := slices.Index(t.unsynced, c)
		if invariants.Enabled { // or WaitDurable has not waited for it: docs/invariants.md 1
			invariants.Check(at >= 0, "kv: a batch is durable that was not announced")
		}
		if at >= 0 {
			t.unsynced = slices.Delete(t.unsynced, at, at+1)
		}
		t.mu.Unlock()
		return true
	})
}

// pending returns the commits that wrote to the stripe of key and are not yet durable.
func (s *stripes) pending(key []byte) []*commit {
	t := &s.list[s.of(key)]
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.unsynced)
}
