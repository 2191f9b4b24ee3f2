package odb

import (
	"context"
	"errors"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/intent"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// ErrTaken says that another server took this one for dead and removes the files that were about to
// be registered. The write has not happened, and may be tried again.
var ErrTaken = intent.ErrTaken

// register adds the registration of a file to b, which then requires that the intent of the file
// stands. Errors: [ErrTaken].
func (s *Store) register(b *kv.Batch, id segment.LayerID, r segment.Registration) error {
	b.Put(registrationKey(id), r.Encode())
	if s.intents == nil {
		return nil
	}
	return s.intents.Require(b, r.Kind.FileName(id))
}

// registered says that the batch that registers files was committed. The files are moved to their
// place in the background.
func (s *Store) registered(ctx context.Context, names ...string) {
	if s.intents != nil {
		s.intents.Registered(names...)
	}
	s.settle(context.WithoutCancel(ctx), names)
}

// unregister reports whether a file is not registered and never will be, so that the caller may
// delete it. After an error it stays; in an [file.Incoming] the next start decides, elsewhere a
// collector.
func (s *Store) unregister(ctx context.Context, id segment.LayerID, name string) (bool, error) {
	if s.intents != nil {
		return s.intents.Take(ctx, name)
	}
	_, err := s.keys.Get(ctx, registrationKey(id))
	if errors.Is(err, kv.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// deleteUnregistered deletes a file, unless it is registered.
func (s *Store) deleteUnregistered(ctx context.Context, id segment.LayerID, name string) error {
	if ours, err := s.unregister(ctx, id, name); !ours {
		return err
	}
	return s.Files.Delete(ctx, name)
}

// reserve tells the store which file is about to be created. release ends that if it is not.
func (s *Store) reserve(ctx context.Context, name string) (release func()) {
	file.Reserve(ctx, s.Files, name)
	return func() {
		if s.intents != nil {
			s.intents.Release(name)
		}
	}
}

// Collect removes the files that servers which have gone did not register, those that it saw at
// least grace ago for the first time. It does nothing where starts do so.
func (s *Store) Collect(ctx context.Context, grace time.Duration) error {
	if s.intents == nil {
		return nil
	}
	return s.intents.Collect(ctx, grace)
}

// IntentStats returns the counts of the intents of files; zero where there are none.
func (s *Store) IntentStats() intent.Stats {
	if s.intents == nil {
		return intent.Stats{}
	}
	return s.intents.Stats()
}

func (s *Store) endIntents() {
	if s.intents != nil {
		s.intents.End()
	}
}
