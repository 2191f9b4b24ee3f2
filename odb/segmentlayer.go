package odb

import (
	"context"
	"errors"
	"io"
	"slices"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// SegmentLayer is a segment, with its auxiliary files. The views of all pools that use the same
// files share it: visibility sets, of which each fork has its own, are no part of it.
type SegmentLayer struct {
	store     *Store
	ID        segment.LayerID
	data      segment.SharedFile
	Rows      *segment.SharedFile // nil: none; so the next four
	Filters   *segment.SharedFile
	Histories *segment.SharedFile
	Trigrams  *segment.SharedFile
	Bitmaps   *segment.SharedFile
	pins      int // guarded by layerSet.mu

	auxiliaries []manifestLayer // files
}

// newSegmentLayer returns the layer of a segment and its auxiliary files.
func newSegmentLayer(
	s *Store, files *segment.OpenFiles, id segment.LayerID, auxiliaries []manifestLayer,
) *SegmentLayer {
	l := &SegmentLayer{store: s, ID: id, auxiliaries: auxiliaries}
	l.data.Init(files, id, id, segment.KindSegment)
	for _, auxiliary := range auxiliaries {
		f := &segment.SharedFile{}
		f.Init(files, id, auxiliary.id, auxiliary.kind)
		switch auxiliary.kind {
		case segment.KindGraph:
			l.Rows = f
		case segment.KindFilter:
			l.Filters = f
		case segment.KindHistory:
			l.Histories = f
		case segment.KindTrigram:
			l.Trigrams = f
		case segment.KindBitmap:
			l.Bitmaps = f
		default: // is none of a segment's
		}
	}
	return l
}

// files returns the files of the segment and its auxiliary files.
func (l *SegmentLayer) files() []*segment.SharedFile {
	return slices.DeleteFunc([]*segment.SharedFile{&l.data, l.Rows, l.Filters, l.Histories, l.Trigrams, l.Bitmaps},
		func(f *segment.SharedFile) bool { return f == nil })
}

// Segments returns the segments of a view, those of its quarantine first and then the newest first.
func (v *View) Segments() []*SegmentLayer {
	var found []*SegmentLayer
	for _, layers := range v.layerLists() {
		for _, l := range layers {
			if segment, ok := l.(*SegmentLayer); ok {
				found = append(found, segment)
			}
		}
	}
	return found
}

func (l *SegmentLayer) layerID() segment.LayerID { return l.ID }

// consistsOf reports whether id names the segment or one of its auxiliary files.
func (l *SegmentLayer) consistsOf(id segment.LayerID) bool {
	return l.ID == id || slices.ContainsFunc(l.auxiliaries, func(auxiliary manifestLayer) bool {
		return auxiliary.id == id
	})
}

func (l *SegmentLayer) isOpen() bool {
	return slices.ContainsFunc(l.files(), func(f *segment.SharedFile) bool { return f.Opened() })
}

func (l *SegmentLayer) close() error {
	var err error
	for _, f := range l.files() {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Acquire opens the segment's file, unless it is open, and keeps it open until release.
func (l *SegmentLayer) Acquire(ctx context.Context) (segment.Segment, error) {
	g, err := l.data.Acquire(ctx)
	if err != nil {
		return segment.Segment{}, err
	}
	return segment.Segment{File: g}, nil
}

// Release ends one Acquire.
func (l *SegmentLayer) Release(segment.Segment) { l.data.Release() }

func (l *SegmentLayer) find(ctx context.Context, id object.ID) (Location, bool, error) {
	g, err := l.data.Acquire(ctx)
	if err != nil {
		return Location{}, false, err
	}
	defer l.data.Release()
	ordinal, ok, err := g.Lookup(ctx, id)
	return Location{layer: l, id: id, ordinal: ordinal}, ok, err
}

func (l *SegmentLayer) scan(ctx context.Context, low, high object.ID, visit func(object.ID) bool) error {
	g, err := l.data.Acquire(ctx)
	if err != nil {
		return err
	}
	defer l.data.Release()
	return g.Scan(ctx, low, high, visit)
}

func (l *SegmentLayer) stat(ctx context.Context, at Location) (Info, error) {
	g, err := l.Acquire(ctx)
	if err != nil {
		return Info{}, err
	}
	defer l.Release(g)
	r, err := g.Record(ctx, at.ordinal)
	return Info{Type: r.Type, Size: r.Size}, err
}

func (l *SegmentLayer) entry(ctx context.Context, at Location) (StoredEntry, error) {
	g, err := l.Acquire(ctx)
	if err != nil {
		return StoredEntry{}, err
	}
	defer l.Release(g)
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

func (l *SegmentLayer) step(ctx context.Context, at Location) (step, error) {
	g, err := l.Acquire(ctx)
	if err != nil {
		return step{}, err
	}
	defer l.Release(g)
	r, err := g.Record(ctx, at.ordinal)
	return packedStep(r), err
}

func (l *SegmentLayer) content(ctx context.Context, at Location, buffer *[]byte) ([]byte, error) {
	g, err := l.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Release(g)
	r, err := g.Record(ctx, at.ordinal)
	if err != nil {
		return nil, err
	}
	return g.Region().Content(ctx, r, at.id, buffer)
}

func (l *SegmentLayer) stream(ctx context.Context, at Location) (io.ReadCloser, error) {
	g, err := l.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	r, err := g.Record(ctx, at.ordinal)
	if err != nil {
		l.Release(g)
		return nil, err
	}
	stream, err := g.Region().Open(ctx, r, at.id)
	if err != nil {
		l.Release(g)
		return nil, err
	}
	return &heldStream{ReadCloser: stream, release: func() { l.Release(g) }}, nil
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

func (l *SegmentLayer) copyPayload(ctx context.Context, w io.Writer, e *StoredEntry) error {
	g, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	defer l.Release(g)
	return copyPackedPayload(ctx, w, g.Region(), e)
}

func (l *SegmentLayer) graph(ctx context.Context, id object.ID) (GraphRow, bool, error) {
	if l.Rows == nil {
		return GraphRow{}, false, nil
	}
	g, err := l.Rows.Acquire(ctx)
	if err != nil {
		return GraphRow{}, false, err
	}
	defer l.Rows.Release()
	return g.GraphRow(ctx, id)
}

// At returns the location of an ordinal, which ends with the view that has the segment.
func (l *SegmentLayer) At(ordinal uint32) Location { return Location{layer: l, ordinal: ordinal} }

// EntryOf describes the entry of a record, without the ID of its base; see [View.CopyPacked].
func (l *SegmentLayer) EntryOf(
	ctx context.Context, region segment.Region, ordinal uint32, r segment.Record,
) (StoredEntry, error) {
	return packedEntry(ctx, region, l.At(ordinal), r)
}
