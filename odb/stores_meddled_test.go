package odb_test

import (
	"bytes"
	"context"
	"sync/atomic"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// meddledKeys is a key-value store in which something happens once, after a key was read.
type meddledKeys struct {
	kv.Store
	next atomic.Pointer[meddling]
}

type meddling struct {
	after func(key []byte) bool
	do    func()
}

func (s *meddledKeys) meddle(after func(key []byte) bool, do func()) {
	s.next.Store(&meddling{after, do})
}

func (s *meddledKeys) Get(ctx context.Context, key []byte) ([]byte, error) {
	value, err := s.Store.Get(ctx, key)
	if next := s.next.Load(); next != nil && next.after(key) && s.next.CompareAndSwap(next, nil) {
		next.do()
	}
	return value, err
}

func isManifestOf(pool odb.PoolID) func(key []byte) bool {
	return func(key []byte) bool { return bytes.Equal(key, append([]byte{'m'}, pool[:]...)) }
}

// stuckFiles is a file store in which deletions fail that refuse says an error for.
type stuckFiles struct {
	file.Store
	refuse func(name string) error
}

func (s *stuckFiles) Delete(ctx context.Context, name string) error {
	if s.refuse != nil {
		if err := s.refuse(name); err != nil {
			return err
		}
	}
	return s.Store.Delete(ctx, name)
}
