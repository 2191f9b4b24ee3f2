package kv

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"packhorse/odb/rescue"
)

// snapshot is a view of a Pebble store with a timer on its life.
type snapshot struct {
	store *Pebble
	timer *time.Timer

	mu   sync.RWMutex // guards the fields below; shared while view is read
	view *pebble.Snapshot
	gone error // why view is nil
}

// snapshotSet is the open snapshots of a store.
type snapshotSet struct {
	mu   sync.Mutex // guards open
	open map[*snapshot]struct{}
}

// Snapshot implements Store.
func (p *Pebble) Snapshot(ctx context.Context) (Snapshot, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.life.RUnlock()
	s := &snapshot{store: p, view: p.db.NewSnapshot()}
	p.snapshots.add(s)
	s.mu.Lock()
	s.timer = rescue.After(p.snapshotAge, func() error { return s.end(ErrSnapshotExpired) }, func(err error) {
		p.logger.Error("kv: failed to end an old snapshot", "error", err)
	})
	s.mu.Unlock()
	return s, nil
}

// Get implements Reader.
func (s *snapshot) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	return get(s.view, key)
}

// Scan implements Reader.
func (s *snapshot) Scan(ctx context.Context, options ScanOptions) iter.Seq2[Pair, error] {
	return scan(options, func(into *page, options ScanOptions) error {
		if err := s.enter(ctx); err != nil {
			return err
		}
		defer s.mu.RUnlock()
		return into.fill(ctx, s.view, options)
	})
}

// Close implements Snapshot.
func (s *snapshot) Close() error {
	s.mu.RLock()
	timer := s.timer
	s.mu.RUnlock()
	timer.Stop()
	return s.end(ErrClosed)
}

// enter begins a read, which ends with mu.RUnlock. The open view keeps the store open.
func (s *snapshot) enter(ctx context.Context) error {
	if err := s.store.alive(ctx); err != nil {
		return err
	}
	s.mu.RLock()
	if s.view == nil {
		defer s.mu.RUnlock()
		return s.gone
	}
	return nil
}

// end releases the view; reads fail with reason from now on.
func (s *snapshot) end(reason error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view == nil {
		return nil
	}
	err := s.view.Close()
	s.view, s.gone = nil, reason
	s.store.snapshots.remove(s) // the store may close from now on
	return err
}

func (t *snapshotSet) add(s *snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*snapshot]struct{})
	}
	t.open[s] = struct{}{}
}

func (t *snapshotSet) remove(s *snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, s)
}

// count returns the number of open snapshots.
func (t *snapshotSet) count() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.open))
}

// expireAll ends every open snapshot, waiting for the reads under way.
func (t *snapshotSet) expireAll() {
	t.mu.Lock()
	var open []*snapshot
	for s := range t.open {
		open = append(open, s)
	}
	t.mu.Unlock()
	for _, s := range open {
		s.timer.Stop()
		_ = s.end(ErrClosed)
	}
}
