package odb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// pendingSegment is the segment that a quarantine writes once it is too large for the hot tier. Its
// objects can be read while it grows. They are whole entries, or versions of a folder as deltas
// against the ones before.
type pendingSegment struct {
	store *Store
	w     *segment.Writer

	// folders are the newest versions of folders, by ID; only the writer looks at them. Their contents
	// take folderBytes.
	folders     map[object.ID]pendingFolder
	folderBytes int

	// mu guards the fields below, which only the writer changes, so that it reads them without. It is
	// held for moments, for which readers do not sleep as they would at a sync.RWMutex.
	mu      sync.Mutex
	ordinal map[object.ID]uint32
	ids     []object.ID
	records []segment.Record
	rows    map[object.ID]GraphRow
	named   segment.NamedIDs
}

func newPendingSegment(ctx context.Context, s *Store) (*pendingSegment, error) {
	w, err := segment.NewWriter(ctx, s.env)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(make([]byte, pack.HeaderSize)); err != nil { // Complete knows the count
		return nil, errors.Join(err, w.Abort())
	}
	return &pendingSegment{
		store:   s,
		w:       w,
		folders: make(map[object.ID]pendingFolder),
		ordinal: make(map[object.ID]uint32),
		rows:    make(map[object.ID]GraphRow),
		named:   make(segment.NamedIDs),
	}, nil
}

// pendingFolder is a tree in a pending segment. depth counts the deltas that it is built of.
type pendingFolder struct {
	data  []byte
	depth int
}

const (
	// pendingDepthMax bounds the chains of deltas in a pending segment, which are read before any
	// maintenance: as many as in those of the hot tier.
	pendingDepthMax = 8
	// pendingFoldersMax bounds the bytes of trees that a pending segment holds as bases.
	pendingFoldersMax = 4 * mebibyte
)

// append writes an object, with its graph row if it is a commit. predecessor is the version before
// at the same path, zero if unknown. A tree's data is kept. A failure leaves the earlier objects
// intact.
func (l *pendingSegment) append(
	id object.ID, t object.Type, data []byte, predecessor object.ID, row *GraphRow,
) error {
	start := l.w.Size()
	before := l.folders[predecessor]
	program, isDelta := []byte(nil), false
	if t == object.TypeTree && before.data != nil && before.depth < pendingDepthMax {
		program, isDelta = createDelta(before.data, data, len(data)/clearWin)
	}
	var written segment.Row
	var err error
	baseOrdinal, depth := segment.NoOrdinal, 0
	if isDelta {
		baseOrdinal, depth = l.ordinal[predecessor], before.depth+1
		written, err = l.w.AppendDelta(id, t, int64(len(data)), program, l.records[baseOrdinal].Offset)
	} else {
		written, err = l.w.AppendWhole(id, t, data)
	}
	if err != nil {
		l.w.Rewind(start)
		return err
	}
	l.add(written, baseOrdinal, row)
	l.named.Add(t, data, before.data)
	if t == object.TypeTree {
		l.keepFolder(id, pendingFolder{data, depth}, predecessor)
	}
	return nil
}

// keepFolder keeps a tree as the base of the next one of the same folder, in the place of the one
// before.
func (l *pendingSegment) keepFolder(id object.ID, folder pendingFolder, predecessor object.ID) {
	l.folderBytes -= len(l.folders[predecessor].data)
	delete(l.folders, predecessor)
	if l.folderBytes+len(folder.data) <= pendingFoldersMax {
		l.folders[id] = folder
		l.folderBytes += len(folder.data)
	}
}

// add lists an object that has been written. baseOrdinal is that of its delta base, NoOrdinal if it
// is whole.
func (l *pendingSegment) add(row segment.Row, baseOrdinal uint32, graph *GraphRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ordinal[row.ID] = uint32(len(l.ids))
	l.ids = append(l.ids, row.ID)
	l.records = append(l.records, segment.Record{
		Offset: row.Offset, PackedSize: row.PackedSize, Size: row.Size, Type: row.Type, Base: baseOrdinal,
		CRC32: row.CRC32,
	})
	if graph != nil {
		l.rows[row.ID] = *graph
	}
}

// finish completes the segment and makes it durable.
func (l *pendingSegment) finish(ctx context.Context) (*segment.Sealed, error) {
	if invariants.Enabled {
		l.check()
	}
	if err := l.w.Complete(ctx, len(l.ids)); err != nil {
		return nil, errors.Join(err, l.w.Abort())
	}
	for i, id := range l.ids {
		r := &l.records[i]
		row := segment.Row{
			ID: id, Type: r.Type, Size: r.Size, Offset: r.Offset, PackedSize: r.PackedSize, Base: -1, CRC32: r.CRC32,
		}
		if r.Base != segment.NoOrdinal {
			row.Base = l.records[r.Base].Offset
		}
		if err := l.w.AddRow(ctx, row); err != nil {
			return nil, errors.Join(err, l.w.Abort())
		}
	}
	for id, row := range l.rows {
		if err := l.w.AddGraph(ctx, id, &row); err != nil {
			return nil, errors.Join(err, l.w.Abort())
		}
	}
	l.w.SetSummary(l.named.Summary(l.ids))
	return l.w.Finish(ctx)
}

// check verifies that the entries follow one another from the header to the end, each object once.
func (l *pendingSegment) check() {
	invariants.Check(len(l.ordinal) == len(l.ids), "odb: %d entries hold %d objects", len(l.ids), len(l.ordinal))
	offset := int64(pack.HeaderSize)
	for i := range l.records {
		invariants.Check(l.records[i].Offset == offset, "odb: entry %d lies at %d instead of %d", i, l.records[i].Offset, offset)
		offset += l.records[i].PackedSize
	}
	invariants.Check(offset == l.w.Size(), "odb: the entries end at %d and the segment at %d", offset, l.w.Size())
}

func (l *pendingSegment) layerID() segment.LayerID { return l.w.ID }

func (l *pendingSegment) region() segment.Region {
	return l.w.Region()
}

func (l *pendingSegment) record(at Location) segment.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[at.ordinal]
}

func (l *pendingSegment) id(ordinal uint32) object.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[ordinal]
}

func (l *pendingSegment) find(_ context.Context, id object.ID) (Location, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ordinal, ok := l.ordinal[id]
	return Location{layer: l, id: id, ordinal: ordinal}, ok, nil
}

func (l *pendingSegment) scan(_ context.Context, low, high object.ID, visit func(object.ID) bool) error {
	l.mu.Lock()
	var ids []object.ID
	for _, id := range l.ids {
		if id.Compare(low) >= 0 && id.Compare(high) <= 0 {
			ids = append(ids, id)
		}
	}
	l.mu.Unlock()
	for _, id := range segment.SortIDs(ids) {
		if !visit(id) {
			break
		}
	}
	return nil
}

func (l *pendingSegment) graph(_ context.Context, id object.ID) (GraphRow, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	row, ok := l.rows[id]
	return row, ok, nil
}

func (l *pendingSegment) stat(_ context.Context, at Location) (Info, error) {
	r := l.record(at)
	return Info{Type: r.Type, Size: r.Size}, nil
}

// entry returns no ordinal: the object gets its ordinal when the segment is finished.
func (l *pendingSegment) entry(ctx context.Context, at Location) (StoredEntry, error) {
	r := l.record(at)
	e, err := packedEntry(ctx, l.region(), at, r)
	e.Ordinal = segment.NoOrdinal
	if err == nil && r.Base != segment.NoOrdinal {
		e.Base = l.id(r.Base)
	}
	return e, err
}

func (l *pendingSegment) step(_ context.Context, at Location) (step, error) {
	return packedStep(l.record(at)), nil
}

func (l *pendingSegment) content(ctx context.Context, at Location, buffer *[]byte) ([]byte, error) {
	return l.region().Content(ctx, l.record(at), at.id, buffer)
}

func (l *pendingSegment) stream(ctx context.Context, at Location) (io.ReadCloser, error) {
	return l.region().Open(ctx, l.record(at), at.id)
}

func (l *pendingSegment) copyPayload(ctx context.Context, w io.Writer, e *StoredEntry) error {
	return copyPackedPayload(ctx, w, l.region(), e)
}

// discard aborts a pending segment because of err.
func discard(pending *pendingSegment, err error) error { return errors.Join(err, pending.w.Abort()) }

// room refuses more objects than one pack may have.
func (l *pendingSegment) room() error {
	if len(l.ids) >= l.store.limits.PackCount {
		return fmt.Errorf("%d new objects: %w", len(l.ids), ErrTooLarge)
	}
	return nil
}
