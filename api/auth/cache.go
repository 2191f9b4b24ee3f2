package auth

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

// Bounds of each of the two generations of the caches. A grant takes about 500 bytes, a
// refusal 300.
const (
	cacheGrants   = 8192
	cacheRefusals = 4096
	refusalAge    = time.Minute
)

type cacheKey [sha256.Size]byte

// cache remembers the grants of verified tokens by the hash of the header value.
type cache struct {
	mu     sync.Mutex
	grants generations[cacheKey, *Grant] // guarded by mu
}

func newCache() cache { return cache{grants: generations[cacheKey, *Grant]{max: cacheGrants}} }

func (c *cache) get(key cacheKey) *Grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	grant, _ := c.grants.get(key)
	return grant
}

func (c *cache) put(key cacheKey, grant *Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grants.put(key, grant)
}

func (c *cache) remove(key cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grants.remove(key)
}

// removeKeys drops every grant whose key has been removed.
func (c *cache) removeKeys() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, generation := range []map[cacheKey]*Grant{c.grants.current, c.grants.previous} {
		maps.DeleteFunc(generation, func(_ cacheKey, grant *Grant) bool { return grant.key.removed.Load() })
	}
}

// refusals remembers tokens that were refused, so that the same one costs no second verification.
type refusals struct {
	mu   sync.Mutex
	seen generations[cacheKey, seenRefusal] // guarded by mu
}

// seenRefusal is a cached refusal. It is valid while the keys are those under which it was decided.
type seenRefusal struct {
	err  error
	keys int64 // of Verifier.keys
	at   time.Time
}

func newRefusals() refusals {
	return refusals{seen: generations[cacheKey, seenRefusal]{max: cacheRefusals}}
}

// get returns why a token was refused, or nil.
func (r *refusals) get(key cacheKey, keys int64, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, ok := r.seen.get(key)
	if !ok {
		return nil
	}
	if age := now.Sub(seen.at); seen.keys != keys || age < 0 || age >= refusalAge {
		r.seen.remove(key)
		return nil
	}
	return seen.err
}

func (r *refusals) put(key cacheKey, seen seenRefusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.put(key, seen)
}
