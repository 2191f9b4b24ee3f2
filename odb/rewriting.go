package odb

import "sync"

// rewriting holds the pools that maintenance is rewriting. A fork does not merge their frozen
// layers: the rewrite would be in vain.
type rewriting struct {
	mu    sync.Mutex // guards pools
	pools map[PoolID]int
}

// begin returns the function that ends the rewriting.
func (r *rewriting) begin(pool PoolID) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pools == nil {
		r.pools = make(map[PoolID]int)
	}
	r.pools[pool]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.pools[pool]--; r.pools[pool] == 0 {
			delete(r.pools, pool)
		}
	}
}

func (r *rewriting) has(pool PoolID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pools[pool] > 0
}
