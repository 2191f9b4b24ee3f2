package odb

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"packhorse/odb/hot"
	"packhorse/odb/segment"
	"packhorse/pack/delta"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// Write quarantines an object and returns its ID. predecessor (zero: none) is the previous version
// at the same path or folder; it or a version before it is the base of a delta, if that is smaller.
// Write does not write an object that the pool already has. It does not modify data. Unless the
// object is a blob, the quarantine may keep data, which then must not change.
//
// The caller guarantees the object's links: the objects that a tree or a commit names are stored or
// quarantined. Write checks a tree against git's rules for the contents of .gitmodules and
// .gitattributes, except files that predecessor has, too.
//
// Errors: [ErrTooLarge], [object.ErrCollision], [*RefusedFileError], that of [object.Check] for an
// invalid object, and [ErrUncommitted] for a quarantine that follows others and becomes too large
// for the hot tier.
func (q *Quarantine) Write(ctx context.Context, t object.Type, data []byte, predecessor object.ID) (object.ID, error) {
	if t == object.TypeBlob && len(data) > streamedMin {
		return q.WriteBlobFrom(ctx, bytes.NewReader(data), int64(len(data)))
	}
	if err := q.checkNew(ctx, t, data, predecessor); err != nil {
		return object.ZeroID, fmt.Errorf("write %s: %w", t, err)
	}
	id, err := object.Hash(t, data)
	if err != nil {
		return object.ZeroID, fmt.Errorf("write %s: %w", t, err)
	}
	return id, q.putNew(ctx, id, t, data, predecessor)
}

// WriteHashed is [Quarantine.Write] for an object whose ID the caller has from [object.Hash].
func (q *Quarantine) WriteHashed(
	ctx context.Context, id object.ID, t object.Type, data []byte, predecessor object.ID,
) error {
	if t == object.TypeBlob && len(data) > streamedMin {
		_, err := q.WriteBlobFrom(ctx, bytes.NewReader(data), int64(len(data)))
		return err
	}
	if invariants.Enabled {
		hashed, err := object.Hash(t, data)
		invariants.Check(err != nil || hashed == id, "odb: %s %s is written as %s", t, hashed, id)
	}
	if err := q.checkNew(ctx, t, data, predecessor); err != nil {
		return fmt.Errorf("write %s %s: %w", t, id, err)
	}
	return q.putNew(ctx, id, t, data, predecessor)
}

// putNew adds an object that has been checked, unless the pool has it.
func (q *Quarantine) putNew(
	ctx context.Context, id object.ID, t object.Type, data []byte, predecessor object.ID,
) error {
	if there, err := q.has(ctx, id); there || err != nil {
		return err
	}
	if predecessor == id { // borrowed, and perhaps not readable: a delta would build on itself
		predecessor = object.ZeroID
	}
	if err := q.put(ctx, id, t, data, predecessor); err != nil {
		return fmt.Errorf("write %s %s: %w", t, id, err)
	}
	return nil
}

// checkNew checks an object as an object of a pack is checked.
func (q *Quarantine) checkNew(ctx context.Context, t object.Type, data []byte, predecessor object.ID) error {
	if int64(len(data)) > q.store.limits.ObjectBytes {
		return fmt.Errorf("%d bytes: %w", len(data), ErrTooLarge)
	}
	if t != object.TypeBlob && len(data) > segment.WholeMax {
		return fmt.Errorf("%d bytes: %w", len(data), ErrTooLarge) // too large to be read whole
	}
	if t == object.TypeTree {
		return q.checkTree(ctx, data, predecessor)
	}
	return object.Check(t, data)
}

// put adds an object that is new: to the hot tier while the write is small, else to a segment.
func (q *Quarantine) put(ctx context.Context, id object.ID, t object.Type, data []byte, predecessor object.ID) error {
	row, err := q.graphRow(ctx, t, data)
	if err != nil {
		return err
	}
	return q.putRow(ctx, id, t, data, predecessor, row)
}

func (q *Quarantine) putRow(
	ctx context.Context, id object.ID, t object.Type, data []byte, predecessor object.ID, row *GraphRow,
) error {
	if q.pending == nil && len(data) <= hotContentMax {
		value, err := q.encodeHot(ctx, id, t, data, predecessor)
		if err != nil {
			return err
		}
		if encoded := value.Encode(); q.fitsHot(len(encoded)) {
			q.hot.add(id, encoded, row)
			q.hot.remember(id, t, data)
			return q.Allow(0)
		}
	}
	if q.pending == nil {
		if err := q.spill(ctx); err != nil {
			return err
		}
	}
	if err := q.pending.room(); err != nil {
		return err
	}
	if err := q.pending.append(id, t, data, predecessor, row); err != nil {
		return err
	}
	return q.Allow(0)
}

// fitsHot reports whether a value of size bytes may join the quarantine's hot objects
// (docs/invariants.md 4).
func (q *Quarantine) fitsHot(size int) bool {
	limits := &q.store.limits
	return size <= limits.HotValueBytes && q.hot.size+size <= limits.HotBytes && len(q.hot.order) < limits.HotCount
}

// Expect says that count objects will be written, more or less. Those that will not fit into the
// hot tier go to a segment from the first one on, which spares storing them twice.
func (q *Quarantine) Expect(ctx context.Context, count int) error {
	if count <= q.store.limits.HotCount || q.following != nil {
		return nil
	}
	return q.toSegment(ctx)
}

// spill begins a segment and moves the hot objects into it, whole.
func (q *Quarantine) spill(ctx context.Context) error {
	if q.following != nil {
		return ErrUncommitted // a segment cannot be forgotten, and changes the manifest
	}
	pending, err := newPendingSegment(ctx, q.store)
	if err != nil {
		return err
	}
	for _, id := range q.hot.order {
		t, data, err := q.view.Read(ctx, id)
		if err != nil {
			return discard(pending, err)
		}
		var row *GraphRow
		if graph, ok := q.hot.rows[id]; ok {
			row = &graph
		}
		if err := pending.append(id, t, data, object.ZeroID, row); err != nil {
			return discard(pending, err)
		}
	}
	q.setPending(pending)
	q.hot.clear()
	return nil
}

// graphRow returns the row of a commit, and nil for any other object.
func (q *Quarantine) graphRow(ctx context.Context, t object.Type, data []byte) (*GraphRow, error) {
	if t != object.TypeCommit {
		return nil, nil
	}
	row, err := segment.ParseGraphRow(data)
	if err != nil {
		return nil, err
	}
	generations := make([]uint32, len(row.Parents))
	for i, parent := range row.Parents {
		known, err := q.view.Linked().Graph(ctx, parent)
		if err != nil {
			return nil, fmt.Errorf("parent %s: %w", parent, err)
		}
		generations[i] = known.Generation
	}
	row.Generation = segment.NextGeneration(generations)
	return &row, nil
}

// versionMax is the number of the last version in a chain of skip-deltas: all of its 8 bits are
// set, and each is a delta (docs/invariants.md 11).
const versionMax = 1<<8 - 1

// firstBaseDepthMax is the longest chain below the base of a first version. The chain below any
// version adds at most 8 deltas, so that none exceeds [DepthMax].
const firstBaseDepthMax = DepthMax - 8

const (
	// hotContentMax is the size in bytes up to which an object may be hot, however small its stored
	// form: a hot object is read whole.
	hotContentMax = 8 * mebibyte
	// deltaMin is the size below which a delta saves nothing that matters.
	deltaMin = 64
	// clearWin is the ratio of object size to delta size from which the delta is used without
	// comparing it with the compressed object.
	clearWin = 8
)

// encodeHot returns the value of an object in the hot tier: whole, or as a skip-delta.
func (q *Quarantine) encodeHot(
	ctx context.Context, id object.ID, t object.Type, data []byte, predecessor object.ID,
) (hot.Value, error) {
	value := hot.Value{ID: id, Type: t, Size: int64(len(data)), ContentSize: int64(len(data))}
	if predecessor.IsZero() || len(data) < deltaMin {
		return hot.Compress(value, data), nil
	}
	base, version, err := q.skipBase(ctx, t, predecessor)
	if err != nil {
		return hot.Value{}, err
	}
	if version == 0 || base.id == id { // it brings back a version that is borrowed, and perhaps not readable
		return hot.Compress(value, data), nil
	}
	_, baseData, err := q.view.ReadAt(ctx, base)
	if err != nil {
		return hot.Value{}, fmt.Errorf("read delta base: %w", err)
	}
	q.view.keep(&base, segment.CacheEntry{Kind: t, Data: baseData}, true) // of the next versions too
	program, ok := createDelta(baseData, data, len(data)-object.IDSize)
	if !ok {
		return hot.Compress(value, data), nil
	}
	short := value
	short.Base, short.Version, short.ContentSize = base.id, version, int64(len(program))
	short = hot.Compress(short, program)
	if len(program) < len(data)/clearWin {
		return short, nil
	}
	if whole := hot.Compress(value, data); len(whole.Payload) <= len(short.Payload)+object.IDSize {
		return whole, nil
	}
	return short, nil
}

// skipBase returns the location of the base of the version after predecessor, and that version's
// number; 0 when it is to be stored whole.
//
// The base of version n is n with its lowest set bit cleared. The chain of bases counts down from
// n-1 by clearing one lowest bit after another, and so passes that number.
func (q *Quarantine) skipBase(
	ctx context.Context, t object.Type, predecessor object.ID,
) (base Location, version uint8, err error) {
	at, ok, err := q.view.locate(ctx, predecessor)
	if err != nil || !ok {
		return Location{}, 0, err
	}
	current, err := at.layer.entry(ctx, at)
	if err != nil || current.value.Version == versionMax {
		return Location{}, 0, err
	}
	version = current.value.Version + 1
	for current.value.Version > version&(version-1) {
		if at, ok, err = q.view.locateFrom(ctx, at.layer, current.Base); err != nil || !ok {
			return Location{}, 0, err
		}
		if current, err = at.layer.entry(ctx, at); err != nil {
			return Location{}, 0, err
		}
	}
	if current.Type != t || current.Size > hotContentMax {
		return Location{}, 0, nil
	}
	if version == 1 && current.Delta() { // it may have come in a pack, with a chain of any length
		depth, err := q.view.depthAt(ctx, at, firstBaseDepthMax+1)
		if err != nil || depth > firstBaseDepthMax {
			return Location{}, 0, err
		}
	}
	return at, version, nil
}

var deltaIndexes = sync.Pool{New: func() any { return delta.NewIndex(nil) }}

// createDelta returns a delta of at most sizeMax bytes that builds data from base, if there is one.
func createDelta(base, data []byte, sizeMax int) ([]byte, bool) {
	index := deltaIndexes.Get().(*delta.Index)
	defer deltaIndexes.Put(index)
	defer index.Reset(nil)
	return index.Between(nil, base, data, sizeMax)
}
