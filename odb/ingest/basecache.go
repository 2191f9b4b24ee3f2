package ingest

import (
	"packhorse/odb/lru"
	"packhorse/pack/object"
)

// baseCache keeps the objects of a pack that are likely to be the next delta bases: packs put a
// delta close behind its base. It is for one goroutine.
type baseCache struct {
	bytesMax func() int64
	buffers  *buffers
	bases    lru.List[uint32, cachedBase] // by ordinal
}

// cachedBase is a resolved object that is held as a delta base.
type cachedBase struct {
	ordinal uint32
	t       object.Type
	depth   int
	data    []byte
}

// cachedBaseOverhead is about the memory of an entry beside its data.
const cachedBaseOverhead = 200

// get returns the object at ordinal, which stays valid until the next put.
func (c *baseCache) get(ordinal uint32) (cachedBase, bool) { return c.bases.Get(ordinal) }

// put takes over an object with its data. Those that have to leave give their buffers back.
func (c *baseCache) put(base cachedBase) {
	c.bases.Put(base.ordinal, base, int64(cap(base.data))+cachedBaseOverhead)
	for c.bases.Bytes() > c.bytesMax() && c.bases.Len() > 0 {
		ordinal, oldest, _ := c.bases.Oldest()
		c.bases.Remove(ordinal)
		c.buffers.put(oldest.data)
	}
}
