package segment_test

import (
	"encoding/binary"
	"testing"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// TestCacheFollowsClones checks that what clones send and walk is cached at once when it takes the
// place of what they used often before, in a cache that is full of that.
func TestCacheFollowsClones(t *testing.T) {
	t.Parallel()
	const budget, size, part = 4 << 20, 1 << 10, 200
	cache, err := segment.NewCache(budget)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]func(object.ID) segment.CacheKey{
		"deflated": segment.DeflatedKey, "folders": segment.FoldersKey,
	}
	for name, keyOf := range keys {
		key := func(i int) segment.CacheKey {
			var id object.ID
			binary.BigEndian.PutUint32(id[:], uint32(i))
			return keyOf(id)
		}
		for first := 0; first < 10*budget/size; first += part {
			for range 20 {
				for i := first; i < first+part; i++ {
					if _, ok := cache.Get(key(i)); !ok {
						cache.Set(key(i), segment.CacheEntry{Data: make([]byte, size)})
					}
				}
			}
			for i := first; i < first+part; i++ {
				if entry, ok := cache.Get(key(i)); !ok || len(entry.Data) != size {
					t.Fatalf("%s: object %d is not cached", name, i)
				}
			}
		}
	}
	bytes, hits, misses := cache.Stats()
	if rounds := uint64(2 * ((10*budget/size + part - 1) / part)); misses != rounds*part || hits != 20*misses {
		t.Errorf("%d hits, %d misses", hits, misses)
	}
	if bytes > budget {
		t.Errorf("%d bytes in a cache for %d", bytes, budget)
	}
	cache.Set(segment.DeflatedKey(object.ID{1}), segment.CacheEntry{Data: make([]byte, budget/4)})
	if _, ok := cache.Get(segment.DeflatedKey(object.ID{1})); ok {
		t.Error("an entry that takes the whole part is cached")
	}
}
