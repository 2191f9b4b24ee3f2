package maintain

import (
	"packhorse/odb"
	"packhorse/pack/invariants"
)

// duePool is a pool that waits for its turn, and whose it is.
type duePool struct {
	pool  odb.PoolID
	owner string
}

// rota is an order of pools in which their owners take turns: one pool of each, those of one owner
// as they came.
type rota struct {
	owners []string // that have pools here, the next one first
	pools  map[string][]odb.PoolID
	count  int
}

func (r *rota) add(d duePool) {
	if r.pools == nil {
		r.pools = make(map[string][]odb.PoolID)
	}
	if len(r.pools[d.owner]) == 0 {
		r.owners = append(r.owners, d.owner)
	}
	r.pools[d.owner] = append(r.pools[d.owner], d.pool)
	r.count++
	r.check()
}

// check asserts that each owner with pools has one place in the order.
func (r *rota) check() {
	if !invariants.Enabled {
		return
	}
	count := 0
	for _, owner := range r.owners {
		count += len(r.pools[owner])
		invariants.Check(len(r.pools[owner]) > 0, "maintain: %q waits without a pool", owner)
	}
	invariants.Check(len(r.owners) == len(r.pools) && count == r.count,
		"maintain: %d owners in %d places, %d pools counted as %d", len(r.pools), len(r.owners), count, r.count)
}

// take returns the next pool. Its owner is the last one then.
func (r *rota) take() (duePool, bool) {
	if r.count == 0 {
		return duePool{}, false
	}
	d := duePool{owner: r.owners[0]}
	r.owners = r.owners[1:]
	pools := r.pools[d.owner]
	d.pool, pools = pools[0], pools[1:]
	if len(pools) == 0 {
		delete(r.pools, d.owner)
	} else {
		r.owners, r.pools[d.owner] = append(r.owners, d.owner), pools
	}
	r.count--
	r.check()
	return d, true
}
