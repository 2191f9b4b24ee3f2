package odb

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// layerSet pins the layers of all views: while a segment is pinned by anyone of this process its file stays.
type layerSet struct {
	store *Store
	files openFiles

	mu       sync.Mutex // guards segments and their pins; nothing is locked below it
	segments map[LayerID]*segmentLayer
}

func newLayerSet(s *Store, openFileCountMax int) *layerSet {
	l := &layerSet{store: s, segments: make(map[LayerID]*segmentLayer)}
	l.files = openFiles{store: s, max: openFileCountMax, idle: l.tidy}
	return l
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
		l = newSegmentLayer(s.store, &s.files, m)
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
	defer s.mu.Unlock()
	segment.pins--
	s.tidyLocked(segment)
}

// tidy forgets a layer that is neither pinned nor open.
func (s *layerSet) tidy(id LayerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.segments[id]; ok {
		s.tidyLocked(l)
	}
}

func (s *layerSet) tidyLocked(l *segmentLayer) {
	if l.pins == 0 && !l.isOpen() {
		delete(s.segments, l.id)
	}
}

// forget closes the files of a layer that is to be removed.
func (s *layerSet) forget(id LayerID) error {
	s.mu.Lock()
	l, ok := s.segments[id]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	err := l.close()
	s.tidy(id)
	return err
}

func (s *layerSet) openFileCount() int { return s.files.count() }

// close closes every file.
func (s *layerSet) close() error {
	s.mu.Lock()
	layers := slices.Collect(maps.Values(s.segments))
	s.mu.Unlock()
	var err error
	for _, l := range layers {
		err = errors.Join(err, l.close())
	}
	return err
}
