package odbtest

import (
	"bytes"
	"context"
	"sync/atomic"

	"packhorse/odb"
	"packhorse/odb/kv"
)

// MeddledKeys is a key-value store in which something happens: once, after a key was read, or after
// each batch.
type MeddledKeys struct {
	kv.Store
	next    atomic.Pointer[meddling]
	applied atomic.Pointer[func()]
}

type meddling struct {
	key []byte
	do  func()
}

// AfterManifest calls do after the next read of the manifest of a pool, before the read returns.
func (s *MeddledKeys) AfterManifest(pool odb.PoolID, do func()) {
	s.next.Store(&meddling{append([]byte{'m'}, pool[:]...), do})
}

// AfterBatches calls do whenever a batch was applied, before Apply returns, but not for the batches
// of do itself. nil ends that.
func (s *MeddledKeys) AfterBatches(do func()) {
	if do == nil {
		s.applied.Store(nil)
		return
	}
	s.applied.Store(&do)
}

// Apply implements [kv.Store].
func (s *MeddledKeys) Apply(ctx context.Context, batch *kv.Batch) (kv.Commit, error) {
	done, err := s.Store.Apply(ctx, batch)
	if do := s.applied.Swap(nil); do != nil {
		(*do)()
		s.applied.CompareAndSwap(nil, do)
	}
	return done, err
}

// Get implements [kv.Store].
func (s *MeddledKeys) Get(ctx context.Context, key []byte) ([]byte, error) {
	value, err := s.Store.Get(ctx, key)
	s.meddle(key)
	return value, err
}

// Read implements [kv.Store].
func (s *MeddledKeys) Read(ctx context.Context, set kv.ReadSet) (kv.Rows, error) {
	rows, err := s.Store.Read(ctx, set)
	for _, key := range set.Keys {
		s.meddle(key)
	}
	return rows, err
}

func (s *MeddledKeys) meddle(key []byte) {
	if next := s.next.Load(); next != nil && bytes.Equal(next.key, key) && s.next.CompareAndSwap(next, nil) {
		next.do()
	}
}
