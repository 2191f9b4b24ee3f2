// Package lru is an LRU cache, bounded by the cost of its values in bytes.
//
// [Cache] has a budget, and may be used concurrently. [List] is its data structure without a lock,
// for callers with a lock or eviction rules of their own. Evicted values are left to the garbage
// collector.
package lru

import "sync"

// List is values by key in the order of their last use. The zero value is empty. It is not for
// concurrent use.
type List[K comparable, V any] struct {
	byKey map[K]*node[K, V]
	ends  node[K, V] // a ring: next is the youngest, prev the oldest
	bytes int64
}

type node[K comparable, V any] struct {
	key        K
	value      V
	bytes      int64
	prev, next *node[K, V]
}

// Len returns the number of values.
func (l *List[K, V]) Len() int { return len(l.byKey) }

// Bytes returns the cost of the values.
func (l *List[K, V]) Bytes() int64 { return l.bytes }

// Peek returns the value of a key, which is not used by that.
func (l *List[K, V]) Peek(key K) (value V, ok bool) {
	n := l.byKey[key]
	if n == nil {
		return value, false
	}
	return n.value, true
}

// Get returns the value of a key, which becomes the youngest.
func (l *List[K, V]) Get(key K) (value V, ok bool) {
	n := l.byKey[key]
	if n == nil {
		return value, false
	}
	n.unlink()
	l.link(n)
	return n.value, true
}

// Put makes a value that costs so much the youngest one, in place of another one of its key.
func (l *List[K, V]) Put(key K, value V, bytes int64) {
	l.Remove(key)
	if l.byKey == nil {
		l.byKey = make(map[K]*node[K, V])
		l.ends.prev, l.ends.next = &l.ends, &l.ends
	}
	n := &node[K, V]{key: key, value: value, bytes: bytes}
	l.byKey[key] = n
	l.link(n)
	l.bytes += bytes
}

// Remove removes the value of a key, and returns it if it existed.
func (l *List[K, V]) Remove(key K) (value V, ok bool) {
	n := l.byKey[key]
	if n == nil {
		return value, false
	}
	n.unlink()
	delete(l.byKey, key)
	l.bytes -= n.bytes
	return n.value, true
}

// Oldest returns the value that was not used for the longest time, if there is one.
func (l *List[K, V]) Oldest() (key K, value V, ok bool) {
	if len(l.byKey) == 0 {
		return key, value, false
	}
	return l.ends.prev.key, l.ends.prev.value, true
}

func (l *List[K, V]) link(n *node[K, V]) {
	n.prev, n.next = &l.ends, l.ends.next
	n.prev.next, n.next.prev = n, n
}

func (n *node[K, V]) unlink() { n.prev.next, n.next.prev = n.next, n.prev }

// Cache keeps values within a budget of bytes. Its methods may be called concurrently; values are
// shared.
//
// It is an interface for the sake of those who build: a package compiles the methods of every
// generic type that it reaches through the types it uses, and most packages reach some caches.
type Cache[K comparable, V any] interface {
	// Get returns the value of a key, if it exists.
	Get(key K) (value V, ok bool)
	// Take is Get for a value that is to have one user: it leaves the cache.
	Take(key K) (value V, ok bool)
	// Put keeps a value that costs some bytes, in place of another one of its key, unless that is
	// too much.
	Put(key K, value V, bytes int64)
	// PutUnless is Put unless the key has a value of which stays is true.
	PutUnless(key K, value V, bytes int64, stays func(old V) bool)
	// Len returns the number of values.
	Len() int
	// Bytes returns the cost of the values.
	Bytes() int64
}

type cache[K comparable, V any] struct {
	bytesMax, valueBytesMax int64

	mu   sync.Mutex
	list List[K, V] // guarded by mu
}

// New returns an empty cache for bytesMax bytes, of which a value may cost valueBytesMax.
func New[K comparable, V any](bytesMax, valueBytesMax int64) Cache[K, V] {
	return &cache[K, V]{bytesMax: bytesMax, valueBytesMax: min(bytesMax, valueBytesMax)}
}

func (c *cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list.Get(key)
}

func (c *cache[K, V]) Take(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list.Remove(key)
}

func (c *cache[K, V]) Put(key K, value V, bytes int64) { c.PutUnless(key, value, bytes, nil) }

func (c *cache[K, V]) PutUnless(key K, value V, bytes int64, stays func(old V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.list.Peek(key); ok {
		if stays != nil && stays(old) {
			return
		}
		c.list.Remove(key)
	}
	if bytes > c.valueBytesMax {
		return
	}
	c.list.Put(key, value, bytes)
	for c.list.Bytes() > c.bytesMax {
		oldest, _, _ := c.list.Oldest()
		c.list.Remove(oldest)
	}
}

func (c *cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list.Len()
}

func (c *cache[K, V]) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list.Bytes()
}
