package odb

import (
	"container/list"
	"sync"

	"packhorse/odb/segment"
)

// asideCache is a private cache: it keeps the inflated objects that one task read last. A task that
// reads a repository from end to end, such as building bitmaps, has one of its own. In the common
// cache its objects would displace those that requests read, and stay there.
type asideCache struct {
	mu      sync.Mutex // guards the fields below
	bytes   int64
	entries map[segment.CacheKey]*list.Element
	order   *list.List // of asideEntry, most recently used first
}

type asideEntry struct {
	key   segment.CacheKey
	value segment.CacheEntry
}

// asideBytesMax suffices for the versions of a folder that a walk over paths opens together, and
// their delta bases.
const asideBytesMax = 16 * mebibyte

// Aside gives v a private cache, which lives as long as v, stops counting v as a request's view,
// and returns v. Nothing may have been read through v before.
func (v *View) Aside() *View {
	v.store.traffic.leave()
	v.own = &asideCache{entries: make(map[segment.CacheKey]*list.Element), order: list.New()}
	return v
}

// shareAside makes v use the private cache of other.
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
