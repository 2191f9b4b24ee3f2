package auth

import (
	"crypto/sha256"
	"sync"
)

// cacheGrants bounds each of the two generations of the cache. A grant takes about 500 bytes.
const cacheGrants = 8192

// cache remembers the grants of verified tokens by the hash of what the client sent. It has two generations: a full one becomes the
// previous one, which keeps what is asked for again.
type cache struct {
	mu                sync.Mutex
	current, previous map[cacheKey]*Grant // guarded by mu
}

type cacheKey [sha256.Size]byte

func (c *cache) get(key cacheKey) *Grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if grant, ok := c.current[key]; ok {
		return grant
	}
	grant, ok := c.previous[key]
	if ok {
		delete(c.previous, key)
		c.putLocked(key, grant)
	}
	return grant
}

func (c *cache) put(key cacheKey, grant *Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(key, grant)
}

func (c *cache) putLocked(key cacheKey, grant *Grant) {
	if c.current == nil || len(c.current) >= cacheGrants {
		c.previous, c.current = c.current, make(map[cacheKey]*Grant)
	}
	c.current[key] = grant
}

func (c *cache) remove(key cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.current, key)
	delete(c.previous, key)
}

// removeKeys drops every grant whose key has been removed.
func (c *cache) removeKeys() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, generation := range []map[cacheKey]*Grant{c.current, c.previous} {
		for key, grant := range generation {
			if grant.key.removed.Load() {
				delete(generation, key)
			}
		}
	}
}

func (c *cache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.current) + len(c.previous)
}
