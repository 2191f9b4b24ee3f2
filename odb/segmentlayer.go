package odb

import (
	"context"
	"errors"
	"io"
	"slices"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// segmentLayer is a segment of a pool, with the companion that holds its graph rows if it has commits.
type segmentLayer struct {
	store   *Store
	id      segment.LayerID
	data    segment.SharedFile
	rows    *segment.SharedFile // nil: none; so the next two
	filters *segment.SharedFile
	bitmaps *segment.SharedFile
	pins    int // guarded by layerSet.mu

	companions []manifestLayer
}

func newSegmentLayer(s *Store, files *segment.OpenFiles, m manifestLayer) *segmentLayer {
	l := &segmentLayer{store: s, id: m.id, companions: m.companions}
	l.data.Init(files, m.id, m.id, segment.KindSegment)
	for _, companion := range m.companions {
		f := &segment.SharedFile{}
		f.Init(files, m.id, companion.id, companion.kind)
		switch companion.kind {
		case segment.KindGraph:
			l.rows = f
		case segment.KindFilter:
			l.filters = f
		case segment.KindBitmap:
			l.bitmaps = f
		default: // has no file, or is none of a segment's
		}
	}
	return l
}

// files are those of the segment and its companions.
func (l *segmentLayer) files() []*segment.SharedFile {
	return slices.DeleteFunc([]*segment.SharedFile{&l.data, l.rows, l.filters, l.bitmaps}, func(f *segment.SharedFile) bool { return f == nil })
}

// segments returns the segments of a view, those of its quarantine first and then the newest first.
func (v *View) segments() []*segmentLayer {
	var found []*segmentLayer
	for _, layers := range v.layerLists() {
		for _, l := range layers {
			if segment, ok := l.(*segmentLayer); ok {
				found = append(found, segment)
			}
		}
	}
	return found
}

func (l *segmentLayer) layerID() segment.LayerID { return l.id }

// consistsOf reports whether id names the segment or one of its companions.
func (l *segmentLayer) consistsOf(id segment.LayerID) bool {
	return l.id == id || slices.ContainsFunc(l.companions, func(companion manifestLayer) bool { return companion.id == id })
}

func (l *segmentLayer) isOpen() bool {
	return slices.ContainsFunc(l.files(), func(f *segment.SharedFile) bool { return f.Opened() })
}

func (l *segmentLayer) close() error {
	var err error
	for _, f := range l.files() {
		err = errors.Join(err, f.Close())
	}
	return err
}

// acquire opens the segment's file, unless it is open, and keeps it open until release.
func (l *segmentLayer) acquire(ctx context.Context) (*segment.Segment, error) {
	g, err := l.data.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &segment.Segment{File: g}, nil
}

func (l *segmentLayer) release(*segment.Segment) { l.data.Release() }

func (l *segmentLayer) find(ctx context.Context, id object.ID) (location, bool, error) {
	g, err := l.data.Acquire(ctx)
	if err != nil {
		return location{}, false, err
	}
	defer l.data.Release()
	ordinal, ok, err := g.Lookup(ctx, id)
	return location{layer: l, id: id, ordinal: ordinal}, ok, err
}

func (l *segmentLayer) scan(ctx context.Context, low, high object.ID, visit func(object.ID) bool) error {
	g, err := l.data.Acquire(ctx)
	if err != nil {
		return err
	}
	defer l.data.Release()
	return g.Scan(ctx, low, high, visit)
}

func (l *segmentLayer) stat(ctx context.Context, at location) (Info, error) {
	g, err := l.acquire(ctx)
	if err != nil {
		return Info{}, err
	}
	defer l.release(g)
	r, err := g.Record(ctx, at.ordinal)
	return Info{Type: r.Type, Size: r.Size}, err
}

func (l *segmentLayer) entry(ctx context.Context, at location) (StoredEntry, error) {
	g, err := l.acquire(ctx)
	if err != nil {
		return StoredEntry{}, err
	}
	defer l.release(g)
	r, err := g.Record(ctx, at.ordinal)
	if err != nil {
		return StoredEntry{}, err
	}
	e, err := packedEntry(ctx, g.Region(), at, r)
	if err == nil && r.Base != segment.NoOrdinal {
		e.Base, err = g.ID(ctx, r.Base)
	}
	return e, err
}

func (l *segmentLayer) step(ctx context.Context, at location) (step, error) {
	g, err := l.acquire(ctx)
	if err != nil {
		return step{}, err
	}
	defer l.release(g)
	r, err := g.Record(ctx, at.ordinal)
	return packedStep(r), err
}

func (l *segmentLayer) content(ctx context.Context, at location) ([]byte, error) {
	g, err := l.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer l.release(g)
	r, err := g.Record(ctx, at.ordinal)
	if err != nil {
		return nil, err
	}
	return g.Region().Content(ctx, r, at.id)
}

func (l *segmentLayer) stream(ctx context.Context, at location) (io.ReadCloser, error) {
	g, err := l.acquire(ctx)
	if err != nil {
		return nil, err
	}
	r, err := g.Record(ctx, at.ordinal)
	if err != nil {
		l.release(g)
		return nil, err
	}
	stream, err := g.Region().Open(ctx, r, at.id)
	if err != nil {
		l.release(g)
		return nil, err
	}
	return &heldStream{ReadCloser: stream, release: func() { l.release(g) }}, nil
}

// heldStream keeps a segment open while it is read.
type heldStream struct {
	io.ReadCloser
	release func()
}

func (s *heldStream) Close() error {
	if s.release == nil {
		return nil
	}
	s.release()
	s.release = nil
	return s.ReadCloser.Close()
}

func (l *segmentLayer) copyPayload(ctx context.Context, w io.Writer, e *StoredEntry) error {
	g, err := l.acquire(ctx)
	if err != nil {
		return err
	}
	defer l.release(g)
	return copyPackedPayload(ctx, w, g.Region(), e)
}

func (l *segmentLayer) graph(ctx context.Context, id object.ID) (GraphRow, bool, error) {
	if l.rows == nil {
		return GraphRow{}, false, nil
	}
	g, err := l.rows.Acquire(ctx)
	if err != nil {
		return GraphRow{}, false, err
	}
	defer l.rows.Release()
	return g.GraphRow(ctx, id)
}

// At returns the location of an ordinal, which ends with the view that has the segment.
func (l *segmentLayer) At(ordinal uint32) location { return location{layer: l, ordinal: ordinal} }

// EntryOf describes the entry of a record, without the ID of its base; see [View.CopyPacked].
func (l *segmentLayer) EntryOf(ctx context.Context, region segment.Region, ordinal uint32, r segment.Record) (StoredEntry, error) {
	return packedEntry(ctx, region, l.At(ordinal), r)
}
