package quota

import (
	"testing"

	"packhorse/odb"
	"packhorse/odb/segment"
)

// Counting an organization forgets none of its repositories, however many there are; one that has
// no quota forgets those that nobody writes to.
func TestTrim(t *testing.T) {
	t.Parallel()
	a := newAccount(Config{}, "acme")
	for range poolsMax + 5 {
		id := odb.PoolID(segment.NewLayerID())
		if !a.replace(id, a.settled(id), 1, nil, nil) {
			t.Fatal("the pool was not counted")
		}
	}
	if len(a.pools) != poolsMax+5 {
		t.Errorf("%d repositories are counted", len(a.pools))
	}
	for _, p := range a.pools {
		p.holds = 1 // any
		break
	}
	a.trim()
	if len(a.pools) != 1 {
		t.Errorf("%d repositories are remembered, one is written to", len(a.pools))
	}
}
