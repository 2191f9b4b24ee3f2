package odb

import (
	"context"
	"errors"
	"io"
	"slices"

	"packhorse/pack/object"
)

// segmentLayer is a segment of a pool, with the companion that holds its graph rows if it has commits.
type segmentLayer struct {
	store   *Store
	id      LayerID
	data    sharedFile
	rows    *sharedFile // nil: none; so the next two
	filters *sharedFile
	bitmaps *sharedFile
	pins    int // guarded by layerSet.mu

	companions []manifestLayer
}

func newSegmentLayer(s *Store, files *openFiles, m manifestLayer) *segmentLayer {
	l := &segmentLayer{store: s, id: m.id, companions: m.companions, data: sharedFile{set: files, owner: m.id, layer: m.id, kind: layerSegment}}
	for _, companion := range m.companions {
		f := &sharedFile{set: files, owner: m.id, layer: companion.id, kind: companion.kind}
		switch companion.kind {
		case layerGraph:
			l.rows = f
		case layerFilter:
			l.filters = f
		case layerBitmap:
			l.bitmaps = f
		default: // has no file, or is none of a segment's
		}
	}
	return l
}

// files are those of the segment and its companions.
func (l *segmentLayer) files() []*sharedFile {
	return slices.DeleteFunc([]*sharedFile{&l.data, l.rows, l.filters, l.bitmaps}, func(f *sharedFile) bool { return f == nil })
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

func (l *segmentLayer) layerID() LayerID { return l.id }

// consistsOf reports whether id names the segment or one of its companions.
func (l *segmentLayer) consistsOf(id LayerID) bool {
	return l.id == id || slices.ContainsFunc(l.companions, func(companion manifestLayer) bool { return companion.id == id })
}

func (l *segmentLayer) isOpen() bool {
	return slices.ContainsFunc(l.files(), func(f *sharedFile) bool { return f.isOpen.Load() })
}

func (l *segmentLayer) close() error {
	var err error
	for _, f := range l.files() {
		err = errors.Join(err, f.close())
	}
	return err
}

// acquire opens the segment's file, unless it is open, and keeps it open until release.
func (l *segmentLayer) acquire(ctx context.Context) (*segment, error) {
	g, err := l.data.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &segment{g}, nil
}

func (l *segmentLayer) release(*segment) { l.data.release() }

func (l *segmentLayer) find(ctx context.Context, id object.ID) (location, bool, error) {
	g, err := l.data.acquire(ctx)
	if err != nil {
		return location{}, false, err
	}
	defer l.data.release()
	ordinal, ok, err := g.lookup(ctx, id)
	return location{layer: l, id: id, ordinal: ordinal}, ok, err
}

func (l *segmentLayer) scan(ctx context.Context, low, high object.ID, visit func(object.ID) bool) error {
	g, err := l.data.acquire(ctx)
	if err != nil {
		return err
	}
	defer l.data.release()
	return g.scan(ctx, low, high, visit)
}

func (l *segmentLayer) stat(ctx context.Context, at location) (Info, error) {
	g, err := l.acquire(ctx)
	if err != nil {
		return Info{}, err
	}
	defer l.release(g)
	r, err := g.record(ctx, at.ordinal)
	return Info{Type: r.Type, Size: r.Size}, err
}

func (l *segmentLayer) entry(ctx context.Context, at location) (StoredEntry, error) {
	g, err := l.acquire(ctx)
	if err != nil {
		return StoredEntry{}, err
	}
	defer l.release(g)
	r, err := g.record(ctx, at.ordinal)
	if err != nil {
		return StoredEntry{}, err
	}
	e, err := packedEntry(ctx, g.region(), at, r)
	if err == nil && r.Base != noOrdinal {
		e.Base, err = g.id(ctx, r.Base)
	}
	return e, err
}

func (l *segmentLayer) step(ctx context.Context, at location) (step, error) {
	g, err := l.acquire(ctx)
	if err != nil {
		return step{}, err
	}
	defer l.release(g)
	r, err := g.record(ctx, at.ordinal)
	return packedStep(r), err
}

func (l *segmentLayer) content(ctx context.Context, at location) ([]byte, error) {
	g, err := l.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer l.release(g)
	r, err := g.record(ctx, at.ordinal)
	if err != nil {
		return nil, err
	}
	return g.region().content(ctx, r, at.id)
}

func (l *segmentLayer) stream(ctx context.Context, at location) (io.ReadCloser, error) {
	g, err := l.acquire(ctx)
	if err != nil {
		return nil, err
	}
	r, err := g.record(ctx, at.ordinal)
	if err != nil {
		l.release(g)
		return nil, err
	}
	stream, err := g.region().openContent(ctx, r, at.id)
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
	return copyPackedPayload(ctx, w, g.region(), e)
}

func (l *segmentLayer) graph(ctx context.Context, id object.ID) (GraphRow, bool, error) {
	if l.rows == nil {
		return GraphRow{}, false, nil
	}
	g, err := l.rows.acquire(ctx)
	if err != nil {
		return GraphRow{}, false, err
	}
	defer l.rows.release()
	return g.graphRow(ctx, id)
}
