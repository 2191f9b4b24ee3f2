package kv

import (
	"context"
	"testing"
)

// Whoever waits for a batch to become durable waits inside of Block, and does not enter it for one
// that is durable.
func TestBlock(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	entered := 0
	c := &commit{done: done, failed: make(chan struct{}), block: func(_ context.Context, wait func() error) error {
		entered++
		close(done)
		return wait()
	}}
	for range 2 {
		if err := c.Wait(t.Context()); err != nil || entered != 1 {
			t.Errorf("error %v, entered %d times", err, entered)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	never := &commit{done: make(chan struct{}), failed: make(chan struct{})}
	if err := never.Wait(canceled); err == nil {
		t.Error("a wait without Block does not end with its context")
	}
}
