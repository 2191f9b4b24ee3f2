package refs

import (
	"container/list"
	"sync"

	"packhorse/pack/invariants"
)

// cache keeps the decoded refs of the repositories that were read last, under a budget of bytes.
type cache struct {
	bytesMax int64

	mu    sync.Mutex
	bytes int64                    // guarded by mu, as are the fields below
	sets  map[RepoID]*list.Element // of *cached
	order list.List                // the one read last is in front
}

type cached struct {
	repo RepoID
	set  *set
}

// get returns the set of a repository, of whichever sequence, or nil.
func (c *cache) get(repo RepoID) *set {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.sets[repo]
	if element == nil {
		return nil
	}
	c.order.MoveToFront(element)
	return element.Value.(*cached).set
}

// put keeps a set unless it has a later one of the repository, or no room for it.
func (c *cache) put(repo RepoID, s *set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element := c.sets[repo]; element != nil {
		if element.Value.(*cached).set.sequence >= s.sequence {
			return
		}
		c.remove(element)
	}
	if s.bytes > c.bytesMax {
		return
	}
	if c.sets == nil {
		c.sets = make(map[RepoID]*list.Element)
	}
	c.sets[repo] = c.order.PushFront(&cached{repo: repo, set: s})
	c.bytes += s.bytes
	for c.bytes > c.bytesMax {
		c.remove(c.order.Back())
	}
}

// remove forgets a set. The caller holds mu.
func (c *cache) remove(element *list.Element) {
	entry := c.order.Remove(element).(*cached)
	c.bytes -= entry.set.bytes
	delete(c.sets, entry.repo)
	if invariants.Enabled {
		invariants.Check(len(c.sets) == c.order.Len(),
			"refs: %d cached sets in an order of %d", len(c.sets), c.order.Len())
		invariants.Check(c.bytes >= 0 && (c.bytes == 0 || len(c.sets) > 0),
			"refs: %d cached sets take %d bytes", len(c.sets), c.bytes)
	}
}
