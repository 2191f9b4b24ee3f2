package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"packhorse/odb/kv"
)

// Opening is a view that is about to be opened, for callers that read what this takes together with
// rows of their own. It serves one goroutine, and ends with View or Close.
type Opening struct {
	store  *Store
	pool   PoolID
	likely *View // of the manifest that was read last, nil when none is known
	writes bool  // see ForWrite
	raw    []byte
}

// View returns a view of a pool. The caller closes it. Errors: [ErrNoPool], [ErrCorrupt].
func (s *Store) View(ctx context.Context, pool PoolID) (*View, error) {
	o := s.Opening(pool)
	set, take := o.ReadAhead()
	rows, err := s.keys.Read(ctx, set)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read manifest of pool %s: %w", pool, err), o.Close())
	}
	take(rows)
	return o.View(ctx)
}

// Opening begins to open a view of a pool.
func (s *Store) Opening(pool PoolID) *Opening {
	o := &Opening{store: s, pool: pool}
	if m, known := s.known.Get(pool); known {
		o.likely = s.newView(pool, m)
	}
	return o
}

// ForWrite has ReadAhead read, too, what [Quarantine.ReadAhead] of a quarantine over the view is
// going to ask for, if the pool stands still.
func (o *Opening) ForWrite() { o.writes = true }

// ReadAhead returns what has to be read, at one instant, and a function that takes what was found.
func (o *Opening) ReadAhead() (set kv.ReadSet, take func(rows kv.Rows)) {
	set = kv.ReadSet{Keys: [][]byte{manifestKey(o.pool)}}
	var behind advances
	if o.likely != nil {
		if o.writes {
			set.Keys = o.likely.appendCountKey(set.Keys)
		}
		behind = o.likely.behind(&set)
	}
	return set, func(rows kv.Rows) {
		o.raw = rows.Values[0]
		behind.take(rows.Pages)
	}
}

// View returns the view, of the instant at which the rows of ReadAhead were read, or of a later one
// if the manifest has changed since the last view of this pool. The caller closes it. Errors:
// [ErrNoPool], [ErrCorrupt].
func (o *Opening) View(ctx context.Context) (*View, error) {
	v := o.likely
	o.likely = nil
	if v == nil || !bytes.Equal(o.raw, v.manifest.raw) {
		var err error
		if v, err = o.changed(ctx, v); err != nil {
			return nil, err
		}
	} // or its layers were pinned before the manifest that names them was read
	v.renews = true
	return v, nil
}

// changed closes before, which may be nil, and returns a view of another manifest.
func (o *Opening) changed(ctx context.Context, before *View) (*View, error) {
	if before != nil {
		if err := before.Close(); err != nil {
			return nil, err
		}
	}
	if o.raw == nil {
		o.store.known.Take(o.pool)
		return nil, fmt.Errorf("%w: %s", ErrNoPool, o.pool)
	}
	m, err := o.store.manifestOf(o.pool, o.raw)
	if err != nil {
		return nil, err
	}
	v, _, err := o.store.confirm(ctx, o.store.newView(o.pool, m), nil)
	if err != nil {
		return nil, err
	}
	if before != nil {
		m = before.manifest
	}
	o.store.learn(o.pool, &m, &v.manifest)
	return v, nil
}

// Close gives up a view that was not opened.
func (o *Opening) Close() error {
	if o.likely == nil {
		return nil
	}
	return o.likely.Close()
}
