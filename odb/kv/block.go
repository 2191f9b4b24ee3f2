package kv

import "context"

// Block runs wait, during which a call of a store waits for its disk or for another machine: others
// may have the processor meanwhile. It returns the error of wait. A nil Block runs it as it is.
type Block func(ctx context.Context, wait func() error) error

// Run runs wait.
func (b Block) Run(ctx context.Context, wait func() error) error {
	if b == nil {
		return wait()
	}
	return b(ctx, wait)
}
