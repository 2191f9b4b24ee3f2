package odb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// visibilityRowBytes is the size of a row of a visibility set; the last one may be shorter.
const visibilityRowBytes = 128 * kibibyte

// putVisibility adds the rows of a visibility set to b.
func putVisibility(b *kv.Batch, id segment.LayerID, set *visibilitySet) {
	row := 0
	for part := range slices.Chunk(set.encode(id), visibilityRowBytes) {
		b.Put(visibilityKey(id, row), part)
		row++
	}
}

// deleteVisibility adds the deletion of these rows to b.
func deleteVisibility(b *kv.Batch, id segment.LayerID) {
	rows := visibilityRows(id)
	b.DeleteRange(rows.Start, rows.End)
}

// readVisibility reads a visibility set of a pool, or the one that has replaced it.
func (s *Store) readVisibility(ctx context.Context, pool PoolID, auxiliary manifestLayer) (*visibilitySet, error) {
	set, err := s.readStoredVisibility(ctx, auxiliary)
	if !errors.Is(err, errNoVisibility) {
		return set, err
	}
	m, _, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return nil, err
	}
	if now := newBorrowing(&m); now == nil || now.auxiliary.id != auxiliary.id {
		return s.replacedVisibility(ctx, &m)
	}
	return nil, s.damage.Corrupt(auxiliary.id, object.ZeroID, "the visibility set of a fork is missing")
}

// replacedVisibility returns the visibility set that a pool's manifest names now.
func (s *Store) replacedVisibility(ctx context.Context, m *manifest) (*visibilitySet, error) {
	now := newBorrowing(m)
	if now == nil { // a walk has shown that the tips reach all objects
		return &visibilitySet{known: true, all: true}, nil
	}
	return s.readStoredVisibility(ctx, now.auxiliary)
}

var errNoVisibility = errors.New("there is no such visibility set")

// readStoredVisibility reads a visibility set. Errors: errNoVisibility, [ErrCorrupt].
func (s *Store) readStoredVisibility(ctx context.Context, auxiliary manifestLayer) (*visibilitySet, error) {
	if auxiliary.kind == segment.KindBorrowed {
		return s.readVisibilityFile(ctx, auxiliary.id)
	}
	var data []byte
	for pair, err := range s.keys.Scan(ctx, visibilityRows(auxiliary.id)) {
		if err != nil {
			return nil, fmt.Errorf("read visibility set: %w", err)
		}
		data = append(data, pair.Value...)
	}
	if data == nil {
		return nil, errNoVisibility
	}
	set, err := decodeVisibility(auxiliary.id, data)
	if err != nil {
		return nil, s.damage.Corrupt(auxiliary.id, object.ZeroID, "%v", err)
	}
	return set, nil
}

// readVisibilityFile reads a visibility set that an older release has stored. Errors:
// errNoVisibility, [ErrCorrupt].
func (s *Store) readVisibilityFile(ctx context.Context, id segment.LayerID) (set *visibilitySet, err error) {
	name := segment.KindBorrowed.FileName(id)
	f, err := s.Files.Open(ctx, name)
	if errors.Is(err, file.ErrNotFound) {
		return nil, errNoVisibility
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data := make([]byte, f.Size())
	err = segment.ReadChecked(ctx, f, data, 0, func(data []byte) (err error) {
		set, err = decodeVisibility(id, data)
		return err
	})
	if err != nil {
		return nil, s.damage.Wrap(name, id, object.ZeroID, err)
	}
	return set, nil
}
