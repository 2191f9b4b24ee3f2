package githttp

import (
	"packhorse/odb/lru"
	"packhorse/refs"
)

// Bounds of the cached listings of refs.
const (
	listingsBytesMax = 16 << 20 // of all
	listingBytesMax  = 1 << 20  // of one: some 15,000 refs
	listingCost      = 512      // of one, beside its bytes
	listingAskMax    = 1 << 10  // bytes of prefixes
)

// listingKey is a repository and the request for its refs.
type listingKey struct {
	repo                  refs.RepoID
	space                 refs.Namespace
	head                  string // the ref that HEAD leads to
	peel, symrefs, unborn bool
	prefixes              string
}

// listing is the answer to a listing of refs, as of a sequence of the repository.
type listing struct {
	sequence uint64
	answer   []byte // never changed
}

// listings keeps the answers that were given last, the newest of each question. Its methods may be
// called concurrently.
type listings struct {
	cache *lru.Cache[listingKey, listing]
}

// listings caches the last answers, the newest for each question. The zero value is empty. Its
// methods may be called concurrently.
type listings struct {
	mu    sync.Mutex // guards the fields below
	byKey map[listingKey]*list.Element
	order list.List // of *listing, the one used last in front
	bytes int64
}

// get returns the answer of a sequence, nil when it is not there.
func (c listings) get(key listingKey, sequence uint64) []byte {
	l, ok := c.cache.Get(key)
	if !ok || l.sequence != sequence {
		return nil
	}
	return l.answer
}

// put caches an answer, unless there is a later one.
func (c *listings) put(l *listing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.byKey[l.key]; at != nil {
		if at.Value.(*listing).sequence >= l.sequence {
			return
		}
		c.remove(at)
	}
	if c.byKey == nil {
		c.byKey = make(map[listingKey]*list.Element)
	}
	c.byKey[l.key] = c.order.PushFront(l)
	c.bytes += l.cost()
	for c.bytes > listingsBytesMax {
		c.remove(c.order.Back())
	}
}

// remove drops an answer. The caller holds mu.
func (c *listings) remove(at *list.Element) {
	l := c.order.Remove(at).(*listing)
	delete(c.byKey, l.key)
	c.bytes -= l.cost()
}
