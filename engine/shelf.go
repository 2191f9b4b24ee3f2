package engine

import (
	"container/list"
	"sync"
)

// shelf keeps the values that were used last, within a budget of bytes. What is on it is a matter of speed alone. Its methods may be called
// concurrently; values are shared.
type shelf[K comparable, V any] struct {
	bytesMax int64

	mu    sync.Mutex
	bytes int64               // guarded by mu, as are the fields below
	items map[K]*list.Element // of *shelved[K, V]
	order list.List           // the one used last is in front
}

type shelved[K comparable, V any] struct {
	key   K
	value V
	bytes int64
}

func newShelf[K comparable, V any](bytesMax int64) *shelf[K, V] {
	return &shelf[K, V]{bytesMax: bytesMax, items: make(map[K]*list.Element)}
}

// get returns the value of key, if it is there.
func (s *shelf[K, V]) get(key K) (value V, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	element := s.items[key]
	if element == nil {
		return value, false
	}
	s.order.MoveToFront(element)
	return element.Value.(*shelved[K, V]).value, true
}

// take is get for a value that is to have one user: it leaves the shelf.
func (s *shelf[K, V]) take(key K) (value V, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	element := s.items[key]
	if element == nil {
		return value, false
	}
	return s.removeLocked(element).value, true
}

// put keeps a value that takes some bytes, unless that is more than half of the budget.
func (s *shelf[K, V]) put(key K, value V, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if element := s.items[key]; element != nil {
		s.removeLocked(element)
	}
	if bytes > s.bytesMax/2 {
		return
	}
	s.items[key] = s.order.PushFront(&shelved[K, V]{key: key, value: value, bytes: bytes})
	s.bytes += bytes
	for s.bytes > s.bytesMax {
		s.removeLocked(s.order.Back())
	}
}

func (s *shelf[K, V]) removeLocked(element *list.Element) *shelved[K, V] {
	entry := s.order.Remove(element).(*shelved[K, V])
	s.bytes -= entry.bytes
	delete(s.items, entry.key)
	return entry
}

// empty reports whether nothing is on the shelf.
func (s *shelf[K, V]) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items) == 0
}
