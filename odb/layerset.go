package odb

import (
	"errors"
	"sync"
)

// layerSet pins the layers of all views: while a segment is pinned by anyone of this process its file stays.
type layerSet struct {
	store *Store
	files openFiles

	mu       sync.Mutex // guards segments and their pins
	segments map[LayerID]*segmentLayer
}

func newLayerSet(s *Store, openFileCountMax int) *layerSet {
	return &layerSet{
		store:    s,
		files:    openFiles{store: s, max: openFileCountMax},
		segments: make(map[LayerID]*segmentLayer),
	}
}

// pin returns the layer that m names, and keeps it until unpin.
func (s *layerSet) pin(m manifestLayer) layer {
	if m.kind == layerHot {
		return &hotLayer{store: s.store, id: m.id}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.segments[m.id]
	if !ok {
		l = &segmentLayer{store: s.store, id: m.id, data: sharedFile{set: &s.files, layer: m.id, kind: layerSegment}}
		for _, companion := range m.companions {
			if companion.kind == layerGraph {
				l.rows = &sharedFile{set: &s.files, layer: companion.id, kind: layerGraph}
			}
		}
		s.segments[m.id] = l
	}
	l.pins++
	return l
}

// unpin ends one pin. Files of a layer that nobody pins stay open for the next view, until the set of open files needs their place.
func (s *layerSet) unpin(l layer) {
	segment, ok := l.(*segmentLayer)
	if !ok {
		return
	}
	s.mu.Lock()
	segment.pins--
	forgotten := segment.pins == 0 && !segment.isOpen()
	if forgotten {
		delete(s.segments, segment.id)
	}
	s.mu.Unlock()
}

// forget closes the files of a layer that is to be removed.
func (s *layerSet) forget(id LayerID) error {
	s.mu.Lock()
	l, ok := s.segments[id]
	if ok && l.pins == 0 {
		delete(s.segments, id)
	}
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return l.close()
}

// pinned reports whether anyone of this process can still read a layer.
func (s *layerSet) pinned(id LayerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.segments[id]
	return ok && l.pins > 0
}

func (s *layerSet) openFileCount() int { return s.files.count() }

// close closes every file.
func (s *layerSet) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for id, l := range s.segments {
		err = errors.Join(err, l.close())
		delete(s.segments, id)
	}
	return err
}
