package ingest

import (
	"container/list"

	"packhorse/pack/object"
)

// baseCache keeps the objects of a pack that are likely to be the next delta bases: packs put a
// delta close behind its base. It is for one goroutine.
type baseCache struct {
	bytesMax func() int64
	bytes    int64
	buffers  *buffers
	entries  map[uint32]*list.Element
	order    *list.List // of cachedBase, most recently used first
}

// cachedBase is a resolved object that is held as a delta base.
type cachedBase struct {
	ordinal uint32
	t       object.Type
	depth   int
	data    []byte
}

func newBaseCache(bytesMax func() int64, buffers *buffers) *baseCache {
	return &baseCache{bytesMax: bytesMax, buffers: buffers, entries: make(map[uint32]*list.Element), order: list.New()}
}

// cachedBaseOverhead is about the memory of an entry beside its data.
const cachedBaseOverhead = 200

// get returns the object at ordinal, which stays valid until the next put.
func (c *baseCache) get(ordinal uint32) (cachedBase, bool) {
	element, ok := c.entries[ordinal]
	if !ok {
		return cachedBase{}, false
	}
	c.order.MoveToFront(element)
	return element.Value.(cachedBase), true
}

// put takes over an object with its data.
func (c *baseCache) put(base cachedBase) {
	c.bytes += int64(cap(base.data)) + cachedBaseOverhead
	c.entries[base.ordinal] = c.order.PushFront(base)
	for c.bytes > c.bytesMax() && c.order.Len() > 0 {
		oldest := c.order.Remove(c.order.Back()).(cachedBase)
		delete(c.entries, oldest.ordinal)
		c.bytes -= int64(cap(oldest.data)) + cachedBaseOverhead
		c.buffers.put(oldest.data)
	}
}
