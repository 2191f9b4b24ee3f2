package clonecache

import (
	"container/list"
	"slices"
	"time"

	"packhorse/pack/invariants"
)

// entry is a stored pack.
type entry struct {
	key      Key
	fileSize int64
	// tail is what the end of the file tells, nil until it was read and the whole file held against it. It is guarded by Cache.mu and
	// never changes once it is there.
	tail *tail
}

// foundEntry is a file that was there at the start.
type foundEntry struct {
	*entry
	time time.Time // of its last write
}

// shelf is the stored packs in the order of their last use. Whoever calls its methods holds Cache.mu.
type shelf struct {
	order *list.List // of *entry, the oldest first
	byKey map[Key]*list.Element
	bytes int64
}

func newShelf() shelf { return shelf{order: list.New(), byKey: make(map[Key]*list.Element)} }

// fill adds what was found, in the order of time.
func (s *shelf) fill(found []foundEntry) {
	slices.SortFunc(found, func(a, b foundEntry) int { return a.time.Compare(b.time) })
	for _, f := range found {
		s.add(f.entry)
	}
}

func (s *shelf) add(e *entry) {
	if invariants.Enabled {
		invariants.Check(s.byKey[e.key] == nil, "clonecache: two packs of %s", e.key)
	}
	s.byKey[e.key] = s.order.PushBack(e)
	s.bytes += e.fileSize
}

// use returns the entry of a key, which becomes the youngest, or nil.
func (s *shelf) use(key Key) *entry {
	at := s.byKey[key]
	if at == nil {
		return nil
	}
	s.order.MoveToBack(at)
	return at.Value.(*entry)
}

// oldest returns the entry that was not used for the longest time, nil when there is none.
func (s *shelf) oldest() *entry {
	if at := s.order.Front(); at != nil {
		return at.Value.(*entry)
	}
	return nil
}

// remove takes e off the shelf and reports whether it was there: the entry itself, not another of its key.
func (s *shelf) remove(e *entry) bool {
	at := s.byKey[e.key]
	if at == nil || at.Value != e {
		return false
	}
	s.order.Remove(at)
	delete(s.byKey, e.key)
	s.bytes -= e.fileSize
	if invariants.Enabled {
		invariants.Check(s.order.Len() == len(s.byKey) && s.bytes >= 0 && (s.bytes == 0 || s.order.Len() > 0),
			"clonecache: %d packs of %d keys take %d bytes", s.order.Len(), len(s.byKey), s.bytes)
	}
	return true
}

func (s *shelf) count() int { return s.order.Len() }
