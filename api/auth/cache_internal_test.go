package auth

import (
	"encoding/binary"
	"testing"
)

// The cache is bounded, keeps entries in use, and forgets the grants of a removed key at once.
func TestCache(t *testing.T) {
	t.Parallel()
	c := newCache()
	count := func() int { return len(c.grants.current) + len(c.grants.previous) }
	name := func(i int) (key cacheKey) {
		binary.BigEndian.PutUint64(key[:], uint64(i))
		return key
	}
	good, bad := &Grant{key: &key{id: "good"}}, &Grant{key: &key{id: "bad"}}
	c.put(name(0), good)
	for i := 1; i < 10*cacheGrants; i++ {
		c.put(name(i), bad)
		if c.get(name(0)) != good {
			t.Fatalf("a grant in use was lost after %d others", i)
		}
		if n := count(); n > 2*cacheGrants {
			t.Fatalf("%d grants", n)
		}
	}
	bad.key.removed.Store(true)
	c.removeKeys()
	if n := count(); n != 1 || c.get(name(0)) != good {
		t.Errorf("%d grants are left of one", n)
	}
	c.remove(name(0))
	if n := count(); n != 0 {
		t.Errorf("%d grants are left of none", n)
	}
}
