package odb

import (
	"cmp"
	"container/list"
	"context"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"packhorse/odb/fair"
	"packhorse/odb/rescue"
	"packhorse/odb/segment"
)

// visibilityEntry is the cache entry of a visibility set. The set is computed on the first request
// for an ID that no ref or readable object names.
type visibilityEntry struct {
	layers []segment.LayerID // that the fork borrowed; with tips they determine the set
	tips   idList            // of the fork; empty if the computed set was stored
	set    atomic.Pointer[visibilitySet]

	// The fields below are guarded by mu of the cache.
	auxiliary manifestLayer
	size      int               // about its memory in bytes
	found     uint64            // increases with each computed set
	leads     []segment.LayerID // layers whose latest entry it is, or was
	place     *list.Element     // in used; nil: evicted
	flight    *walkFlight       // that computes the set; nil: none
}

// walkFlight is the computation of a set for all requests that wait for it. It is cancelled when
// the last of them gives up.
type walkFlight struct {
	askers int  // guarded by mu of the cache
	landed bool // guarded by mu of the cache
	cancel context.CancelFunc

	done chan struct{} // closed when the fields below are set
	set  *visibilitySet
	err  error
}

// ready returns the set if it is known, else nil.
func (e *visibilityEntry) ready() *visibilitySet { return e.set.Load() }

// visibilityCache caches recently used visibility sets within a budget, and computes each one once.
type visibilityCache struct {
	bytesMax int
	turns    *fair.Queue   // of the walks, among owners
	awaited  atomic.Int64  // requests that wait for a set
	walks    atomic.Uint64 // begun walks
	grown    atomic.Uint64 // those of them that began with another set

	mu     sync.Mutex // guards the fields below
	known  map[segment.LayerID]*visibilityEntry
	used   *list.List                           // of *visibilityEntry, most recently used first
	latest map[segment.LayerID]*visibilityEntry // by borrowed layer, the last computed one
	bytes  int
	found  uint64
}

const (
	// visibilityWalkMax is the number of concurrent visibility walks, and visibilityWalkOwnerMax that
	// of one owner. Each takes 16 MiB for objects and reads on two cores.
	visibilityWalkMax, visibilityWalkOwnerMax = 3, 2
	// visibilityOverhead is about the memory of an entry besides its lists, and
	// visibilityLayerOverhead that of each of its layers.
	visibilityOverhead, visibilityLayerOverhead = 512, 64
)

func newVisibilityCache(bytesMax int) *visibilityCache {
	return &visibilityCache{
		bytesMax: bytesMax,
		turns: fair.NewQueue(fair.Options{
			Capacity: visibilityWalkMax, Share: visibilityWalkOwnerMax, Waiting: math.MaxInt, Wait: math.MaxInt64,
		}),
		known: make(map[segment.LayerID]*visibilityEntry), used: list.New(),
		latest: make(map[segment.LayerID]*visibilityEntry),
	}
}

// find returns the entry of the visibility set of a pool.
func (c *visibilityCache) find(ctx context.Context, s *Store, pool PoolID, of *borrowing) (*visibilityEntry, error) {
	c.mu.Lock()
	found := c.known[of.auxiliary.id]
	if found != nil {
		c.used.MoveToFront(found.place)
	}
	c.mu.Unlock()
	if found != nil {
		return found, nil
	}
	set, err := s.readVisibility(ctx, pool, of.auxiliary)
	if err != nil {
		return nil, err
	}
	return c.add(of, set), nil
}

// add returns the entry of a visibility set that was read.
func (c *visibilityCache) add(of *borrowing, set *visibilitySet) *visibilityEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.known[of.auxiliary.id]; found != nil {
		return found
	}
	next := &visibilityEntry{auxiliary: of.auxiliary, layers: of.layers, tips: set.tips}
	c.insert(next)
	if set.known {
		c.settle(next, set)
	}
	return next
}

// addCarried adds the set of an entry over other segments, as the latest of these. No fork has it;
// new sets grow from it.
func (c *visibilityCache) addCarried(of *visibilityEntry, set *visibilitySet) {
	layers := slices.Collect(maps.Keys(set.segments))
	c.mu.Lock()
	defer c.mu.Unlock()
	name := manifestLayer{kind: segment.KindVisibility, id: segment.NewLayerID()} // of nothing that is stored
	next := &visibilityEntry{auxiliary: name, layers: layers, tips: of.tips}
	c.insert(next)
	c.settle(next, set)
}

// insert adds an entry without a set. The caller holds mu.
func (c *visibilityCache) insert(of *visibilityEntry) {
	c.known[of.auxiliary.id] = of
	of.place = c.used.PushFront(of)
	c.count(of, visibilityOverhead+visibilityLayerOverhead*len(of.layers)+len(of.tips))
}

// settle sets the set of an entry. The caller holds mu.
func (c *visibilityCache) settle(of *visibilityEntry, set *visibilitySet) {
	of.set.Store(set)
	if of.place == nil {
		return
	}
	c.found++
	of.found = c.found
	if len(of.tips) > 0 {
		for _, layer := range of.layers {
			c.lead(of, layer)
		}
	}
	c.count(of, set.size())
}

// lead makes an entry the latest of a layer. The caller holds mu.
func (c *visibilityCache) lead(of *visibilityEntry, layer segment.LayerID) {
	c.latest[layer] = of
	of.leads = append(of.leads, layer)
}

// count adds to the bytes of an entry, and evicts the least recently used entries when all of them
// exceed the budget. Views keep theirs. The caller holds mu.
func (c *visibilityCache) count(of *visibilityEntry, size int) {
	of.size += size
	c.bytes += size
	c.used.MoveToFront(of.place)
	for c.bytes > c.bytesMax && c.used.Back().Value != of {
		c.forget(c.used.Back().Value.(*visibilityEntry))
	}
}

// forget evicts an entry. The caller holds mu.
func (c *visibilityCache) forget(of *visibilityEntry) {
	c.bytes -= of.size
	c.used.Remove(of.place)
	of.place = nil
	delete(c.known, of.auxiliary.id)
	for _, layer := range of.leads {
		if c.latest[layer] == of {
			delete(c.latest, layer)
		}
	}
}

// rename moves an entry to the stored set that has replaced its first one.
func (c *visibilityCache) rename(of *visibilityEntry, auxiliary manifestLayer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.place != nil {
		if other := c.known[auxiliary.id]; other != nil { // another request has read it already
			c.forget(other)
		}
		delete(c.known, of.auxiliary.id)
		of.auxiliary = auxiliary
		c.known[auxiliary.id] = of
	}
}

// merged records that a layer holds the objects of others.
func (c *visibilityCache) merged(layer segment.LayerID, former map[segment.LayerID]struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range former {
		if of := c.latest[id]; of != nil && (c.latest[layer] == nil || c.latest[layer].found < of.found) {
			c.lead(of, layer)
		}
	}
}

// relativesMax is the number of known sets that are tried as the start of a new one.
const relativesMax = 3

// relatives returns the latest entries of layers, the last computed one first.
func (c *visibilityCache) relatives(layers iter.Seq[segment.LayerID]) []*visibilityEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*visibilityEntry
	for layer := range layers {
		if of := c.latest[layer]; of != nil && !slices.Contains(found, of) {
			found = append(found, of)
		}
	}
	slices.SortFunc(found, func(a, b *visibilityEntry) int { return cmp.Compare(b.found, a.found) })
	return found[:min(len(found), relativesMax)]
}

// ask returns the set of an entry, and computes it if necessary.
func (c *visibilityCache) ask(ctx context.Context, v *View, of *visibilityEntry) (*visibilitySet, error) {
	f := c.join(v, of)
	if f == nil {
		return of.ready(), nil
	}
	c.awaited.Add(1)
	defer c.awaited.Add(-1)
	select {
	case <-f.done:
		return f.set, f.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.askers--; f.askers == 0 {
		f.cancel()
		if of.flight == f {
			of.flight = nil
		}
	}
	return nil, ctx.Err()
}

// join returns the flight that computes a set, a new one if there is none, nil when the set is
// known.
func (c *visibilityCache) join(v *View, of *visibilityEntry) *walkFlight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.ready() != nil {
		return nil
	}
	f := of.flight
	if f == nil {
		ctx, cancel := context.WithCancel(v.store.closing)
		f = &walkFlight{cancel: cancel, done: make(chan struct{})}
		of.flight = f
		s, pool, owner, auxiliary := v.store, v.pool, v.owner, of.auxiliary
		rescue.Go(&s.walks, func() error {
			defer cancel()
			tell := func(set *visibilitySet, err error) { c.land(of, f, set, err) }
			s.computeVisibility(ctx, pool, owner, of, auxiliary, tell)
			return nil
		}, func(err error) {
			s.log.ErrorContext(ctx, "failed to compute the visibility set of a fork", "pool", pool.String(), "error", err)
			c.land(of, f, nil, err)
		})
	}
	f.askers++
	return f
}

// land passes the result of a flight to all waiting requests.
func (c *visibilityCache) land(of *visibilityEntry, f *walkFlight, set *visibilitySet, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.landed { // the failure came afterwards
		return
	}
	f.landed = true
	if of.flight == f {
		of.flight = nil
	}
	if err == nil && of.ready() == nil {
		c.settle(of, set)
	}
	f.set, f.err = set, err
	close(f.done)
}
