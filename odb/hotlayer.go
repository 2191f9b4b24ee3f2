package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// hotLayer is a key range of small objects.
type hotLayer struct {
	store *Store
	id    segment.LayerID
	epoch uint64 // of the view
	rows  hot.Reader
}

// newHotLayer returns a hot layer, for a view of an epoch. frozen says that it takes no writes.
func newHotLayer(s *Store, id segment.LayerID, frozen bool, epoch uint64) *hotLayer {
	l := &hotLayer{
		store: s, id: id, epoch: epoch, rows: hot.Reader{ID: id, Keys: s.keys, Copies: s.copies, Frozen: frozen},
	}
	if s.options.Epochs != nil {
		l.rows.Stands = l.stands
	}
	return l
}

// stands returns [ErrGone] if the layer may be removed, as by another process that has lost sight
// of this one. Who finds nothing in the layer asks it afterwards.
func (l *hotLayer) stands(ctx context.Context) error {
	if l.store.options.Epochs.holds(l.epoch) {
		return nil
	}
	// It is removed when no manifest names it, and none ever names it again.
	used, err := l.store.isUsed(ctx, l.id)
	if err == nil && !used {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("read hot layer %s: %w", l.id, err)
	}
	return nil
}

func (l *hotLayer) layerID() segment.LayerID { return l.id }

func (l *hotLayer) at(id object.ID, value []byte) Location {
	return Location{layer: l, id: id, ordinal: segment.NoOrdinal, value: value}
}

func (l *hotLayer) find(ctx context.Context, id object.ID) (Location, bool, error) {
	value, state, err := l.rows.Value(ctx, id)
	if state == hot.AbsentSoFar {
		return l.stored(ctx, id)
	}
	return l.at(id, value), state == hot.Held, err
}

// stored is find past the copy of the layer.
func (l *hotLayer) stored(ctx context.Context, id object.ID) (Location, bool, error) {
	value, err := l.rows.Stored(ctx, id)
	return l.at(id, value), value != nil, err
}

// value returns the value at a location, also if the location has released its bytes.
func (l *hotLayer) value(ctx context.Context, at Location) (HotValue, error) {
	if at.value == nil {
		found, ok, err := l.find(ctx, at.id)
		if err != nil {
			return HotValue{}, err
		}
		if !ok {
			return HotValue{}, l.store.damage.Corrupt(l.id, at.id, "it vanished while it was read")
		}
		at = found
	}
	v, err := hot.Decode(at.id, at.value)
	if err != nil {
		return HotValue{}, l.store.damaged(l.id, at.id, err)
	}
	return v, nil
}

func (l *hotLayer) stat(ctx context.Context, at Location) (Info, error) {
	v, err := l.value(ctx, at)
	return Info{Type: v.Type, Size: v.Size}, err
}

func (l *hotLayer) entry(ctx context.Context, at Location) (StoredEntry, error) {
	v, err := l.value(ctx, at)
	if err != nil {
		return StoredEntry{}, err
	}
	return StoredEntry{
		ID:          at.id,
		Type:        v.Type,
		Size:        v.Size,
		Base:        v.Base,
		Encoding:    v.Encoding,
		ContentSize: v.ContentSize,
		PayloadSize: int64(len(v.Payload)),
		Layer:       l.id,
		Ordinal:     segment.NoOrdinal,
		at:          at,
		value:       v,
	}, nil
}

func (l *hotLayer) step(ctx context.Context, at Location) (step, error) {
	v, err := l.value(ctx, at)
	return step{
		Info:        Info{Type: v.Type, Size: v.Size},
		ContentSize: v.ContentSize,
		Delta:       !v.Base.IsZero(),
		BaseOrdinal: segment.NoOrdinal,
		Base:        v.Base,
	}, err
}

func (l *hotLayer) content(ctx context.Context, at Location, _ *[]byte) ([]byte, error) {
	v, err := l.value(ctx, at)
	if err != nil {
		return nil, err
	}
	content, err := v.Content()
	if err != nil {
		return nil, l.store.damaged(l.id, at.id, err)
	}
	return content, nil
}

func (l *hotLayer) stream(ctx context.Context, at Location) (io.ReadCloser, error) {
	v, err := l.value(ctx, at)
	if err != nil {
		return nil, err
	}
	if v.Encoding == EncodingZlib { // a small value that arrived in a pack may inflate to a large object
		return &inflatedValue{
			Inflater: pack.NewInflater(bytes.NewReader(v.Payload)), layer: l, id: at.id, left: v.ContentSize,
		}, nil
	}
	content, err := l.content(ctx, at, nil)
	return io.NopCloser(bytes.NewReader(content)), err
}

// inflatedValue inflates a hot value, whose checksum has been verified, and verifies its size.
type inflatedValue struct {
	*pack.Inflater
	layer *hotLayer
	id    object.ID
	left  int64
}

func (s *inflatedValue) Read(p []byte) (int, error) {
	n, err := s.Inflater.Read(p)
	s.left -= int64(n)
	atEnd := errors.Is(err, io.EOF)
	switch {
	case s.left < 0 || (atEnd && s.left != 0):
		err = s.layer.store.damage.Corrupt(s.layer.id, s.id, "hot value inflates to another size than it says")
	case err != nil && !atEnd:
		err = s.layer.store.damaged(s.layer.id, s.id, err)
	}
	return n, err
}

func (l *hotLayer) copyPayload(_ context.Context, w io.Writer, e *StoredEntry) error {
	_, err := w.Write(e.value.Payload)
	return err
}

func (l *hotLayer) graph(ctx context.Context, id object.ID) (GraphRow, bool, error) {
	row, state, err := l.graphSoFar(ctx, id)
	if state == hot.AbsentSoFar {
		return l.storedGraph(ctx, id)
	}
	return row, state == hot.Held, err
}

// graphSoFar is graph, but the row of a commit that was added since the layer was copied may be
// hot.AbsentSoFar.
func (l *hotLayer) graphSoFar(ctx context.Context, id object.ID) (GraphRow, hot.State, error) {
	row, state, err := l.rows.Graph(ctx, id)
	if err != nil {
		return GraphRow{}, hot.Absent, l.store.damaged(l.id, id, err)
	}
	return row, state, nil
}

// storedGraph is graph past the copy of the layer.
func (l *hotLayer) storedGraph(ctx context.Context, id object.ID) (GraphRow, bool, error) {
	row, state, err := l.rows.StoredGraph(ctx, id)
	if err != nil {
		return GraphRow{}, false, l.store.damaged(l.id, id, err)
	}
	return row, state == hot.Held, nil
}

func (l *hotLayer) scan(ctx context.Context, low, high object.ID, visit func(object.ID) bool) error {
	end := append(hot.ObjectKey(l.id, high), 0)
	for pair, err := range l.store.keys.Scan(ctx, kv.ScanOptions{Start: hot.ObjectKey(l.id, low), End: end}) {
		if err != nil {
			return err
		}
		id, ok := hot.IDOfKey(pair.Key)
		if !ok {
			return l.store.damage.Corrupt(l.id, object.ZeroID, "key %x is no object's", pair.Key)
		}
		if !visit(id) {
			return nil
		}
	}
	return l.stands(ctx)
}
