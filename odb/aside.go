package odb

import (
	"container/list"
	"sync"

	"packhorse/odb/segment"
)

// asideCache keeps the inflated objects that one piece of work read last. Work that reads a
// repository from end to end once, such as making bitmaps, has one of its own: in the common cache
// what it read would stand in for what requests read, and stay there for good.
type asideCache struct {
	mu      sync.Mutex // guards the fields below
	bytes   int64
	entries map[segment.CacheKey]*list.Element
	order   *list.List // of asideEntry, the last used in front
}

type asideEntry struct {
	key   segment.CacheKey
	value segment.CacheEntry
}

// asideBytesMax holds the versions of a folder that a walk over paths opens together, and the bases
// that they are deltas against.
const asideBytesMax = 16 * mebibyte

// Aside returns v with a cache of its own, which goes with it, and no longer counted as a
// request's. It must not be read through yet.
func (v *View) Aside() *View {
	v.store.traffic.leave()
	v.own = &asideCache{entries: make(map[segment.CacheKey]*list.Element), order: list.New()}
	return v
}

// shareAside makes v one of the work that other is aside for.
func (v *View) shareAside(other *View) {
	v.store.traffic.leave()
	v.own = other.own
}

func (c *asideCache) get(key segment.CacheKey) (segment.CacheEntry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[key]
	if !ok {
		return segment.CacheEntry{}, false
	}
	c.order.MoveToFront(element)
	return element.Value.(asideEntry).value, true
}

func (c *asideCache) set(key segment.CacheKey, value segment.CacheEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok {
		return // another goroutine has read it too
	}
	c.entries[key] = c.order.PushFront(asideEntry{key, value})
	c.bytes += value.Weight()
	for c.bytes > asideBytesMax {
		oldest := c.order.Remove(c.order.Back()).(asideEntry)
		delete(c.entries, oldest.key)
		c.bytes -= oldest.value.Weight()
	}
}
