package odb

import (
	"errors"
	"slices"
	"sync"

	"packhorse/odb/segment"
	"packhorse/pack/invariants"
)

// layerSet pins the layers of all views: while a view of this process pins a layer, its files and
// keys stay.
type layerSet struct {
	store *Store
	files *segment.OpenFiles

	mu sync.Mutex // guards the fields below and the pins of segments; nothing is locked below it
	// segments are the pinned or open segments. A segment whose auxiliary files were replaced occurs
	// once for each set of them.
	segments map[segment.LayerID][]*SegmentLayer
	rows     map[segment.LayerID]int // pins of hot layers and visibility sets
}

func newLayerSet(s *Store, openFileCountMax int) *layerSet {
	l := &layerSet{store: s, segments: make(map[segment.LayerID][]*SegmentLayer), rows: make(map[segment.LayerID]int)}
	l.files = segment.NewOpenFiles(s.env, openFileCountMax, l.tidy)
	return l
}

// pin returns the layer that m names, for a view of an epoch, and keeps it until unpin. frozen says
// that it takes no writes.
func (s *layerSet) pin(m manifestLayer, frozen bool, epoch uint64) layer {
	if m.kind == segment.KindHot {
		s.pinRows(m.id)
		return newHotLayer(s.store, m.id, frozen, epoch)
	}
	auxiliaries := m.shared()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.segments[m.id], func(l *SegmentLayer) bool {
		return slices.EqualFunc(l.auxiliaries, auxiliaries, sameAuxiliary)
	})
	if at < 0 {
		at = len(s.segments[m.id])
		s.segments[m.id] = append(s.segments[m.id], newSegmentLayer(s.store, s.files, m.id, auxiliaries))
	}
	l := s.segments[m.id][at]
	l.pins++
	return l
}

// pinRows keeps a hot layer or a visibility set until unpinRows.
func (s *layerSet) pinRows(id segment.LayerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[id]++
}

// unpinRows ends one pinRows.
func (s *layerSet) unpinRows(id segment.LayerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if invariants.Enabled {
		invariants.Check(s.rows[id] > 0, "odb: rows %s have %d pins before one ends", id, s.rows[id])
	}
	if s.rows[id]--; s.rows[id] == 0 {
		delete(s.rows, id)
	}
}

func sameAuxiliary(a, b manifestLayer) bool { return a.kind == b.kind && a.id == b.id }

// unpin ends one pin. The files of an unpinned layer stay open for the next view, until the set of
// open files needs their place.
func (s *layerSet) unpin(l layer) {
	switch l := l.(type) {
	case *hotLayer:
		s.unpinRows(l.id)
	case *SegmentLayer:
		s.mu.Lock()
		defer s.mu.Unlock()
		if invariants.Enabled {
			invariants.Check(l.pins > 0, "odb: segment %s has %d pins before one ends", l.ID, l.pins)
		}
		l.pins--
		s.tidyLocked(l.ID)
	}
}

// isPinned reports whether a view may read a layer or auxiliary file.
func (s *layerSet) isPinned(id segment.LayerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows[id] > 0 {
		return true
	}
	for _, layers := range s.segments {
		for _, l := range layers {
			if l.pins > 0 && l.consistsOf(id) {
				return true
			}
		}
	}
	return false
}

// tidy removes a layer that is neither pinned nor open from the set.
func (s *layerSet) tidy(id segment.LayerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidyLocked(id)
}

func (s *layerSet) tidyLocked(id segment.LayerID) {
	left := slices.DeleteFunc(s.segments[id], func(l *SegmentLayer) bool { return l.pins == 0 && !l.isOpen() })
	if len(left) == 0 {
		delete(s.segments, id)
	} else {
		s.segments[id] = left
	}
}

// forget closes the files of a layer or auxiliary file that is about to be deleted.
func (s *layerSet) forget(id segment.LayerID) error {
	var err error
	for _, l := range s.all() {
		if l.consistsOf(id) {
			err = errors.Join(err, l.close())
			s.tidy(l.ID)
		}
	}
	return err
}

// all returns the pinned or open segments.
func (s *layerSet) all() []*SegmentLayer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*SegmentLayer
	for _, layers := range s.segments {
		all = append(all, layers...)
	}
	return all
}

func (s *layerSet) openFileCount() int { return s.files.Count() }

// close closes every file.
func (s *layerSet) close() error {
	var err error
	for _, l := range s.all() {
		err = errors.Join(err, l.close())
	}
	return err
}
