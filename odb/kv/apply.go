package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"packhorse/pack/invariants"
)

// Apply implements Store.
//
// The guards of the batch are held from the check of its preconditions until it is visible, not
// during the sync.
func (p *Pebble) Apply(ctx context.Context, batch *Batch) (Commit, error) {
	if err := batch.Err(); err != nil {
		return nil, err
	}
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.life.RUnlock()
	encoded, err := p.encode(batch)
	if err != nil {
		return nil, err
	}
	touched := p.stripes.footprint(batch)
	c := &commit{
		batch: encoded, written: touched.written, done: make(chan struct{}), failed: p.failed, block: p.block,
	}
	err = p.stripes.lock(ctx, touched, p.failed)
	if err == nil {
		err = p.applyGuarded(batch, c)
		p.stripes.unlock(touched)
	}
	switch {
	case encoded == nil && err == nil:
		return durable{}, nil
	case errors.Is(err, ErrFailed):
		return nil, err // Pebble may still hold the batch
	case err != nil && encoded != nil:
		return nil, errors.Join(err, encoded.Close())
	case err != nil:
		return nil, err
	}
	select {
	case p.syncing <- c:
		return c, nil
	case <-p.failed:
		return nil, ErrFailed
	}
}

// applyGuarded checks the preconditions of batch and makes c visible. Its caller holds the guards.
func (p *Pebble) applyGuarded(batch *Batch, c *commit) error {
	if err := p.check(batch); err != nil {
		if errors.Is(err, ErrConflict) {
			p.conflicts.Add(1)
		}
		return err
	}
	if c.batch == nil {
		return nil
	}
	p.unsynced.Add(1)
	p.stripes.announce(c)
	if err := p.applyPebble(c.batch); err != nil {
		p.fail(err)
		return ErrFailed
	}
	p.commits.Add(1)
	if invariants.Enabled {
		p.stripes.checkHeld(batch)
	}
	return nil
}

// check returns a ConflictError for the first precondition that does not hold.
func (p *Pebble) check(batch *Batch) error {
	for want := range batch.Preconditions() {
		value, closer, err := p.db.Get(want.Key)
		if errors.Is(err, pebble.ErrNotFound) {
			if want.Absent {
				continue
			}
			return &ConflictError{Key: bytes.Clone(want.Key)}
		}
		if err != nil {
			return translate(err)
		}
		holds := !want.Absent && bytes.Equal(value, want.Value)
		if err := closer.Close(); err != nil {
			return translate(err)
		}
		if !holds {
			return &ConflictError{Key: bytes.Clone(want.Key)}
		}
	}
	return nil
}

// encode translates batch for Pebble; nil if there is nothing to write.
func (p *Pebble) encode(batch *Batch) (*pebble.Batch, error) {
	if len(batch.operations) == 0 {
		return nil, nil
	}
	encoded := p.db.NewBatchWithSize(batch.Size() + 8*batch.Count() + 64)
	if err := encoded.LogData(p.witness.now().encode(), nil); err != nil {
		return nil, errors.Join(err, encoded.Close())
	}
	for op := range batch.Operations() {
		var err error
		switch op.Kind {
		case OperationPut:
			err = encoded.Set(op.Key, op.Value, nil)
		case OperationDelete:
			err = encoded.Delete(op.Key, nil)
		case OperationDeleteRange:
			err = encoded.DeleteRange(op.Key, op.End, nil)
		}
		if err != nil {
			return nil, errors.Join(translate(err), encoded.Close())
		}
	}
	return encoded, nil
}

// applyPebble makes encoded visible.
func (p *Pebble) applyPebble(encoded *pebble.Batch) error {
	p.begun.Add(1)
	defer p.ended.Add(1)
	return p.recovered(func() error { return p.db.ApplyNoSyncWait(encoded, pebble.Sync) })
}

// recovered returns the failure of a call into Pebble as an error. Pebble panics when it cannot
// write a batch to its log; after other failures it calls Fatalf of its logger and goes on.
func (p *Pebble) recovered(call func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("write log: %v", reason)
		}
	}()
	if err := call(); err != nil {
		return err
	}
	if p.hasFailed() {
		return ErrFailed
	}
	return nil
}
