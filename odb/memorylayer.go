package odb

import (
	"context"
	"io"
	"slices"
	"sync"

	"packhorse/odb/segment"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// memoryLayer holds the small objects of a quarantine in the form in which they will be stored.
type memoryLayer struct {
	store *Store

	mu     sync.RWMutex // guards the fields below
	values map[object.ID][]byte
	rows   map[object.ID]GraphRow
	order  []object.ID // in which objects came
	size   int         // of all values
	plain  map[object.ID]segment.CacheEntry
	plains int // bytes of plain
}

// plainMax bounds the trees, commits and tags that a quarantine keeps inflated. It reads them
// again, and caches them when they are committed: the next commit begins with them.
const plainMax = mebibyte

func newMemoryLayer(s *Store) *memoryLayer {
	return &memoryLayer{
		store:  s,
		values: make(map[object.ID][]byte),
		rows:   make(map[object.ID]GraphRow),
		plain:  make(map[object.ID]segment.CacheEntry),
	}
}

func (l *memoryLayer) layerID() segment.LayerID { return segment.LayerID{} }

// add keeps value, which is encoded, and row if the object is a commit.
func (l *memoryLayer) add(id object.ID, value []byte, row *GraphRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if invariants.Enabled {
		_, again := l.values[id]
		invariants.Check(!again, "odb: object %s is quarantined twice", id)
	}
	l.values[id] = value
	l.order = append(l.order, id)
	l.size += len(value)
	if row != nil {
		l.rows[id] = *row
	}
}

// replace stores another value for an object in the layer.
func (l *memoryLayer) replace(id object.ID, value []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size += len(value) - len(l.values[id])
	l.values[id] = value
}

// remember keeps an object that is no blob, if there is room. Its content must stay as it is.
func (l *memoryLayer) remember(id object.ID, t object.Type, data []byte) {
	if t == object.TypeBlob {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.plains+len(data) <= plainMax {
		l.plain[id] = segment.CacheEntry{Kind: t, Data: data}
		l.plains += len(data)
	}
}

func (l *memoryLayer) recall(id object.ID) (segment.CacheEntry, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	hit, ok := l.plain[id]
	return hit, ok
}

// cut removes all objects but the first ones, and returns them.
func (l *memoryLayer) cut(count int) []object.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	removed := slices.Clone(l.order[count:])
	l.order = l.order[:count]
	for _, id := range removed {
		l.size -= len(l.values[id])
		l.plains -= len(l.plain[id].Data)
		delete(l.values, id)
		delete(l.rows, id)
		delete(l.plain, id)
	}
	return removed
}

// clear removes all objects.
func (l *memoryLayer) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.values)
	clear(l.rows)
	clear(l.plain)
	l.order, l.size, l.plains = nil, 0, 0
}

func (l *memoryLayer) find(_ context.Context, id object.ID) (Location, bool, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	value, ok := l.values[id]
	return Location{layer: l, id: id, ordinal: segment.NoOrdinal, value: value}, ok, nil
}

func (l *memoryLayer) scan(_ context.Context, low, high object.ID, visit func(object.ID) bool) error {
	l.mu.RLock()
	ids := make([]object.ID, 0, len(l.order))
	for _, id := range l.order {
		if id.Compare(low) >= 0 && id.Compare(high) <= 0 {
			ids = append(ids, id)
		}
	}
	l.mu.RUnlock()
	for _, id := range segment.SortIDs(ids) {
		if !visit(id) {
			break
		}
	}
	return nil
}

func (l *memoryLayer) graph(_ context.Context, id object.ID) (GraphRow, bool, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	row, ok := l.rows[id]
	return row, ok, nil
}

// hot reads values of this layer, whose locations always keep their bytes.
func (l *memoryLayer) hot() *hotLayer { return &hotLayer{store: l.store} }

func (l *memoryLayer) stat(ctx context.Context, at Location) (Info, error) {
	return l.hot().stat(ctx, at)
}

func (l *memoryLayer) entry(ctx context.Context, at Location) (StoredEntry, error) {
	return l.hot().entry(ctx, at)
}

func (l *memoryLayer) step(ctx context.Context, at Location) (step, error) {
	return l.hot().step(ctx, at)
}

func (l *memoryLayer) content(ctx context.Context, at Location, _ *[]byte) ([]byte, error) {
	return l.hot().content(ctx, at, nil)
}

func (l *memoryLayer) stream(ctx context.Context, at Location) (io.ReadCloser, error) {
	return l.hot().stream(ctx, at)
}

func (l *memoryLayer) copyPayload(ctx context.Context, w io.Writer, e *StoredEntry) error {
	return l.hot().copyPayload(ctx, w, e)
}
