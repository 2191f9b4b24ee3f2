package odb

import (
	"packhorse/odb/lru"
	"packhorse/odb/segment"
)

// privateCache keeps the inflated objects that one task read last. A task that reads a repository
// from end to end, such as building bitmaps, has one of its own. In the common cache its objects
// would displace those that requests read, and stay there.
type privateCache = lru.Cache[segment.CacheKey, segment.CacheEntry]

// privateBytesMax suffices for the versions of a folder that a walk over paths opens together, and
// their delta bases.
const privateBytesMax = 16 * mebibyte

// Aside gives v a private cache, which lives as long as v, stops counting v as a request's view,
// and returns v. Nothing may have been read through v before.
func (v *View) Aside() *View {
	v.setAside(lru.New[segment.CacheKey, segment.CacheEntry](privateBytesMax, privateBytesMax))
	return v
}

// setAside makes v use a private cache, and no reason to copy hot layers.
func (v *View) setAside(own privateCache) {
	v.store.traffic.Leave()
	v.own, v.held.counts = own, false
	for _, l := range v.hotLayers() {
		l.rows.Aside = true
	}
}
