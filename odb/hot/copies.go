package hot

import (
	"sync"

	"packhorse/odb/kv"
	"packhorse/odb/lru"
	"packhorse/odb/segment"
)

// Options are the settings of [NewCopies].
type Options struct {
	// BytesMax is the budget of all copies, LayerBytesMax the size from which a layer is not copied.
	BytesMax, LayerBytesMax int64
	// Remote says that every read of the store costs a round trip over a network. A layer is then
	// copied at the first lookup, and all who write to it call [Add]. Otherwise it is copied after so
	// many lookups that they have cost as much as the copy does; nobody needs to call Add, and
	// only the copy of a frozen layer knows what is absent.
	Remote bool
	// Damaged is called with a row that fails its check. The layer is then read from the store.
	Damaged func(layer segment.LayerID, err error)
}

// Copies are the copies of hot layers in a process. They may be used concurrently.
type Copies struct {
	keys    kv.Reader
	options Options

	mu     sync.Mutex                        // guards layers; a layer's mutex may be taken below it
	layers lru.List[segment.LayerID, *Layer] // with the bytes of their copies
}

// NewCopies returns an empty set of copies of layers in keys.
func NewCopies(keys kv.Reader, options Options) *Copies {
	options.LayerBytesMax = min(options.LayerBytesMax, options.BytesMax)
	return &Copies{keys: keys, options: options}
}

// IsRemote reports whether every read of the store costs a round trip.
func (c *Copies) IsRemote() bool { return c.options.Remote }

// layerCost is the cost in bytes of a layer that is not copied.
const layerCost = 256

// Layer returns the layer of an ID, which need not exist.
func (c *Copies) Layer(id segment.LayerID) *Layer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.layers.Get(id); ok {
		return l
	}
	l := &Layer{copies: c, id: id, turn: make(chan struct{}, 1)}
	c.put(l, 0)
	return l
}

// Put adds a copy of a frozen layer that has these rows and no others. They are kept and must not
// change.
func (c *Copies) Put(id segment.LayerID, rows *Rows) {
	l := c.Layer(id)
	l.mu.Lock()
	if l.rows == nil && !l.gone.Load() {
		l.rows = rows
		for _, row := range rows.all() {
			l.bytes += row.cost()
		}
		l.seal()
	}
	l.mu.Unlock()
	c.account(l)
}

// Drop forgets a layer, which nobody reads any more.
func (c *Copies) Drop(id segment.LayerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.layers.Remove(id); ok {
		l.evict()
	}
}

// Clear drops all copies, of which the store may have lost rows.
func (c *Copies) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		id, l, ok := c.layers.Oldest()
		if !ok {
			return
		}
		c.layers.Remove(id)
		l.evict()
	}
}

// Bytes returns the memory that the copies hold.
func (c *Copies) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.layers.Bytes()
}

// account counts what the copy of a layer holds now, and makes room for it.
func (c *Copies) account(l *Layer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.layers.Peek(l.id); !ok || known != l {
		l.evict() // it has left, and nothing would count what it holds
		return
	}
	c.put(l, l.trim(c.options.LayerBytesMax))
}

func (c *Copies) put(l *Layer, bytes int64) {
	c.layers.Put(l.id, l, layerCost+bytes)
	for c.layers.Bytes() > c.options.BytesMax && c.layers.Len() > 1 {
		id, oldest, _ := c.layers.Oldest()
		c.layers.Remove(id)
		oldest.evict()
	}
}
