package hot

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"packhorse/odb/bloom"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Reader reads a layer: its copy, where there is one, and the store otherwise. It may be used
// concurrently once its fields are set. Damage is noticed when a row is decoded, wherever it came
// from.
type Reader struct {
	ID     segment.LayerID
	Keys   kv.Reader
	Copies *Copies // nil: none
	Frozen bool    // the layer takes no writes
	Direct bool    // only the store is read
	Aside  bool    // the reader is no reason to make a copy, unless the store is remote

	// Stands is called after something was not found, unless it is nil. Its error says that the rows
	// of the layer may have been deleted, and becomes that of the lookup.
	Stands func(ctx context.Context) error

	layer atomic.Pointer[Layer]  // see copied
	told  map[object.ID]([]byte) // see Tell
}

// Tell sets what the store has of an object, nil for nothing, as of an instant that the caller
// chose. Nothing is read concurrently.
func (r *Reader) Tell(id object.ID, value []byte) {
	if r.told == nil {
		r.told = make(map[object.ID][]byte)
	}
	r.told[id] = value
}

// Layer returns the layer that may have a copy, nil if none is to be asked.
func (r *Reader) Layer() *Layer {
	if r.Direct || r.Copies == nil {
		return nil
	}
	l := r.layer.Load()
	if l == nil || l.Gone() {
		l = r.Copies.Layer(r.ID)
		r.layer.Store(l)
	}
	if r.Aside && !r.Copies.IsRemote() && !l.IsCopied() {
		return nil
	}
	return l
}

// IsCopied reports whether lookups are answered by a copy.
func (r *Reader) IsCopied() bool {
	l := r.Layer()
	return l != nil && l.IsCopied()
}

// Behind returns the keys of what a copy lacks, and a function that puts the first page of them
// into it; nil when there is no copy, or nothing can be missing.
func (r *Reader) Behind() (keys kv.ScanOptions, advance func(page kv.Page)) {
	l := r.Layer()
	if l == nil {
		return kv.ScanOptions{}, nil
	}
	tail, ok := l.Tail()
	if !ok {
		return kv.ScanOptions{}, nil
	}
	return tail, func(page kv.Page) { l.Advance(page, r.Frozen) }
}

// CatchUp brings the copy to the addition of a number or beyond. If there is none, the reader goes
// to the store from now on. Nothing is read concurrently.
func (r *Reader) CatchUp(ctx context.Context, number uint64) error {
	l := r.Layer()
	if l == nil {
		return nil
	}
	if !r.Copies.IsRemote() {
		r.Direct = true
		return nil
	}
	reached, err := l.CatchUp(ctx, number)
	r.Direct = !reached
	return err
}

// Value returns the stored value of an object if it is [Held]. What was added to a layer that takes
// writes since it was copied may be [AbsentSoFar], until [Reader.Stored] is asked.
func (r *Reader) Value(ctx context.Context, id object.ID) ([]byte, State, error) {
	if value, ok := r.told[id]; ok {
		return value, stateOf(value), nil
	}
	row, state, err := r.row(ctx, id)
	if err != nil || state != NotCopied {
		return row.Value, state, err
	}
	value, err := r.Stored(ctx, id)
	return value, stateOf(value), err
}

// Lacks reports whether a copy rules out at once that the layer has an object, as it mostly can of
// a frozen layer. [Reader.Value] then returns [Absent].
func (r *Reader) Lacks(id object.ID) bool {
	if r.Direct || r.Stands != nil || r.told != nil {
		return false
	}
	l := r.layer.Load()
	return l != nil && l.lacks(id)
}

// absent is called where something was not found.
func (r *Reader) absent(ctx context.Context) error {
	if r.Stands == nil {
		return nil
	}
	return r.Stands(ctx)
}

// Has reports whether the layer has an object. It may not know of one that was added since the
// layer was copied.
func (r *Reader) Has(ctx context.Context, id object.ID) (bool, error) {
	if value, ok := r.told[id]; ok {
		return value != nil, nil
	}
	if l := r.Layer(); l != nil {
		state, err := l.Has(ctx, id, r.Frozen)
		if err == nil && (state == Absent || state == AbsentSoFar) {
			err = r.absent(ctx)
		}
		if err != nil || state != NotCopied {
			return state == Held, err
		}
	}
	value, err := r.Stored(ctx, id)
	return value != nil, err
}

// Stored returns the value of an object from the store, nil if there is none.
func (r *Reader) Stored(ctx context.Context, id object.ID) ([]byte, error) {
	return r.get(ctx, ObjectKey(r.ID, id))
}

// Graph returns the graph row of a commit if it is [Held]. A commit and its row are added together.
// Errors: [segment.ErrFormat].
func (r *Reader) Graph(ctx context.Context, id object.ID) (segment.GraphRow, State, error) {
	row, state, err := r.row(ctx, id)
	switch {
	case err != nil || state == Absent || state == AbsentSoFar:
		return segment.GraphRow{}, state, err
	case state == Held:
		return graphOf(id, row.Graph)
	default:
		return r.StoredGraph(ctx, id)
	}
}

// StoredGraph returns the graph row of a commit from the store. Errors: [segment.ErrFormat].
func (r *Reader) StoredGraph(ctx context.Context, id object.ID) (segment.GraphRow, State, error) {
	value, err := r.get(ctx, GraphKey(r.ID, id))
	if err != nil {
		return segment.GraphRow{}, Absent, fmt.Errorf("read graph row of %s: %w", id, err)
	}
	return graphOf(id, value)
}

func graphOf(id object.ID, value []byte) (segment.GraphRow, State, error) {
	if value == nil {
		return segment.GraphRow{}, Absent, nil
	}
	row, err := DecodeRow(id, value)
	return row, Held, err
}

// Filter returns the path filter of a commit, nil if there is none. It may not know of one that was
// added to a remote store since the layer was copied. Errors: [segment.ErrFormat].
func (r *Reader) Filter(ctx context.Context, id object.ID) (bloom.Filter, error) {
	row, state, err := r.row(ctx, id)
	if err == nil && (state == NotCopied || state == AbsentSoFar && !r.Copies.IsRemote()) {
		row.Filter, err = r.get(ctx, FilterKey(r.ID, id))
	}
	if err != nil {
		return nil, fmt.Errorf("read path filter of %s: %w", id, err)
	}
	if row.Filter == nil {
		return nil, nil
	}
	return DecodeFilter(id, row.Filter)
}

func (r *Reader) row(ctx context.Context, id object.ID) (Row, State, error) {
	l := r.Layer()
	if l == nil {
		return Row{}, NotCopied, nil
	}
	row, state, err := l.Find(ctx, id, r.Frozen)
	if err == nil && state == Absent {
		err = r.absent(ctx)
	}
	return row, state, err
}

func (r *Reader) get(ctx context.Context, key []byte) ([]byte, error) {
	value, err := r.Keys.Get(ctx, key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, r.absent(ctx)
	}
	return value, err
}

func stateOf(value []byte) State {
	if value == nil {
		return Absent
	}
	return Held
}
