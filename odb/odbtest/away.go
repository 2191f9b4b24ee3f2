package odbtest

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"packhorse/odb/kv"
)

// Away is a key-value store that can be away for a while, as one behind a network: its calls fail
// with [kv.ErrUnavailable] and change nothing.
type Away struct {
	kv.Store
	left   atomic.Int64 // calls that still succeed, while away is true
	away   atomic.Bool
	failed atomic.Int64
	lost   atomic.Int32 // how a batch is answered; see Lose
}

// NewAway returns a store over keys that is there.
func NewAway(keys kv.Store) *Away { return &Away{Store: keys} }

// Leave has the store go away after so many more calls. A page of a scan counts as one.
func (a *Away) Leave(calls int) {
	a.left.Store(int64(calls))
	a.away.Store(true)
}

// Return has the store come back, and returns the number of calls that have failed since Leave.
func (a *Away) Return() (failed int) {
	a.away.Store(false)
	return int(a.failed.Swap(0))
}

// Lose has the next batch fail with [kv.ErrUnknown], applied or not.
func (a *Away) Lose(applied bool) {
	a.lost.Store(1)
	if applied {
		a.lost.Store(2)
	}
}

// fails counts a call, and returns its error.
func (a *Away) fails() error {
	if !a.away.Load() || a.left.Add(-1) >= 0 {
		return nil
	}
	a.failed.Add(1)
	return fmt.Errorf("%w: it was told to leave", kv.ErrUnavailable)
}

// Get implements [kv.Reader].
func (a *Away) Get(ctx context.Context, key []byte) ([]byte, error) { return a.get(ctx, a.Store, key) }

func (a *Away) get(ctx context.Context, from kv.Reader, key []byte) ([]byte, error) {
	if err := a.fails(); err != nil {
		return nil, err
	}
	return from.Get(ctx, key)
}

// Read implements [kv.Reader].
func (a *Away) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	return a.read(ctx, a.Store, set)
}

func (a *Away) read(ctx context.Context, from kv.Reader, set kv.ReadSet) (kv.Rows, error) {
	if err := a.fails(); err != nil {
		return kv.Rows{}, err
	}
	return from.Read(ctx, set)
}

// Scan implements [kv.Reader].
func (a *Away) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return a.scan(ctx, a.Store, options)
}

func (a *Away) scan(ctx context.Context, from kv.Reader, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		if err := a.fails(); err != nil {
			yield(kv.Pair{}, err)
			return
		}
		count := 0
		for pair, err := range from.Scan(ctx, options) {
			if count++; err == nil && count%kv.PageCountMax == 0 {
				err = a.fails()
			}
			if err != nil {
				pair = kv.Pair{}
			}
			if !yield(pair, err) || err != nil {
				return
			}
		}
	}
}

// Snapshot implements [kv.Store].
func (a *Away) Snapshot(ctx context.Context) (kv.Snapshot, error) {
	if err := a.fails(); err != nil {
		return nil, err
	}
	snapshot, err := a.Store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return awaySnapshot{snapshot, a}, nil
}

// Apply implements [kv.Store].
func (a *Away) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	if err := a.fails(); err != nil {
		return nil, err
	}
	switch a.lost.Swap(0) {
	case 1:
		return nil, kv.ErrUnknown
	case 2:
		if _, err := a.Store.Apply(ctx, batch); err != nil {
			return nil, err
		}
		return nil, kv.ErrUnknown
	}
	return a.Store.Apply(ctx, batch)
}

// WaitDurable implements [kv.Store].
func (a *Away) WaitDurable(ctx context.Context, key []byte) error {
	if err := a.fails(); err != nil {
		return err
	}
	return a.Store.WaitDurable(ctx, key)
}

type awaySnapshot struct {
	kv.Snapshot
	store *Away
}

// Get implements [kv.Reader].
func (s awaySnapshot) Get(ctx context.Context, key []byte) ([]byte, error) {
	return s.store.get(ctx, s.Snapshot, key)
}

// Read implements [kv.Reader].
func (s awaySnapshot) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	return s.store.read(ctx, s.Snapshot, set)
}

// Scan implements [kv.Reader].
func (s awaySnapshot) Scan(ctx context.Context, options kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return s.store.scan(ctx, s.Snapshot, options)
}
