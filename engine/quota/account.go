package quota

import (
	"context"
	"errors"
	"sync"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/segment"
)

// account is what one organization stores.
//
// A hot layer is counted once, before this process commits anything to it, and grows by what is
// settled. Every other layer has a size that does not change.
type account struct {
	config Config
	org    string
	turn   chan struct{} // holds one while the stores are read

	mu       sync.Mutex // guards the fields below, and those of pools and layers
	whole    bool       // every repository of the organization is counted
	pools    map[odb.PoolID]*pool
	layers   map[segment.LayerID]*layer
	bytes    int64 // of layers
	reserved int64 // of all holds
}

// layer is a layer of one or more pools.
type layer struct {
	size  odb.Size
	users int
}

// pool is what one repository stores.
type pool struct {
	version  uint64 // of the manifest that layers is of
	layers   []odb.PoolLayer
	bytes    int64 // of its own layers
	reserved int64 // of its holds
	holds    int
	settled  uint64 // counts settled holds: who read the pool before one reads it again
	gone     bool
}

// poolsMax bounds the repositories that an organization without a quota of its own is remembered
// with; idle ones are counted again at their next write.
const poolsMax = 10_000

func newAccount(config Config, org string) *account {
	return &account{
		config: config, org: org, turn: make(chan struct{}, 1),
		pools: make(map[odb.PoolID]*pool), layers: make(map[segment.LayerID]*layer),
	}
}

// take waits for the turn to read the stores.
func (a *account) take(ctx context.Context) (release func(), err error) {
	err = fair.Rest(ctx, func() error {
		select {
		case a.turn <- struct{}{}:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return func() { <-a.turn }, err
}

// know makes sure that what a repository stores is counted as it is now, and all of its
// organization if that has a quota.
func (a *account) know(ctx context.Context, repo Repository, limits Limits) error {
	_, version, err := a.config.Objects.Layers(ctx, repo.Pool)
	if err != nil {
		return err
	}
	a.mu.Lock()
	p := a.pools[repo.Pool]
	known := p != nil && p.version == version && (a.whole || limits.Organization == 0)
	a.mu.Unlock()
	if known {
		return nil
	}
	release, err := a.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	return fair.Do(ctx, func(ctx context.Context) error {
		if limits.Organization == 0 {
			a.trim()
		} else if err := a.load(ctx); err != nil {
			return err
		}
		return a.add(ctx, repo)
	})
}

// knowAll makes sure that every repository of the organization is counted.
func (a *account) knowAll(ctx context.Context) error {
	release, err := a.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	return fair.Do(ctx, a.load)
}

// load counts every repository of the organization. The caller has the turn.
func (a *account) load(ctx context.Context) error {
	a.mu.Lock()
	whole := a.whole
	a.mu.Unlock()
	if whole {
		return nil
	}
	for repo, err := range a.config.Repositories(ctx, a.org) {
		if err == nil {
			err = a.read(ctx, repo.Pool)
		}
		if errors.Is(err, odb.ErrNoPool) {
			continue // deleted since the walk began
		}
		if err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.whole = true
	return nil
}

// add counts a repository. The pool of a deleted one stays for a while, and does not count. The
// caller has the turn.
func (a *account) add(ctx context.Context, repo Repository) error {
	if err := a.read(ctx, repo.Pool); err != nil {
		return err
	}
	exists, err := repo.Exists(ctx)
	if err == nil && !exists {
		a.remove(repo.Pool)
	}
	return err
}

// read counts the layers of a pool that are not known yet. The caller has the turn.
func (a *account) read(ctx context.Context, id odb.PoolID) error {
	fresh := make(map[segment.LayerID]odb.Size)
	for {
		before := a.settled(id)
		layers, version, err := a.config.Objects.Layers(ctx, id)
		if err != nil {
			return err
		}
		for _, l := range layers {
			if _, ok := fresh[l.ID]; ok || a.knows(l.ID) {
				continue
			}
			if fresh[l.ID], err = a.config.Objects.Measure(ctx, l, fair.Pause); err != nil {
				return err
			}
		}
		if a.replace(id, before, version, layers, fresh) {
			return fair.Pause(ctx)
		}
	}
}

func (a *account) knows(id segment.LayerID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.layers[id] != nil
}

// settled returns how many holds of a pool have been settled.
func (a *account) settled(id odb.PoolID) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pools[id]; p != nil {
		return p.settled
	}
	return 0
}

// replace counts the layers of a pool in place of those before. It returns false if a hold has been
// settled, or a layer has gone, since the layers were read.
func (a *account) replace(
	id odb.PoolID, settled, version uint64, layers []odb.PoolLayer, fresh map[segment.LayerID]odb.Size,
) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pools[id]
	if p == nil {
		p = &pool{settled: settled}
	}
	if p.settled != settled {
		return false
	}
	for _, l := range layers {
		if _, ok := fresh[l.ID]; !ok && a.layers[l.ID] == nil {
			return false
		}
	}
	for _, l := range layers {
		a.use(l.ID, fresh[l.ID])
	}
	a.leave(p)
	a.pools[id] = p
	p.version, p.layers, p.bytes = version, layers, 0
	for _, l := range layers {
		if !l.Borrowed {
			p.bytes += a.layers[l.ID].size.Bytes
		}
	}
	return true
}

// use counts one more user of a layer, and the layer if it is new. mu is held.
func (a *account) use(id segment.LayerID, size odb.Size) {
	l := a.layers[id]
	if l == nil {
		l = &layer{size: size}
		a.layers[id] = l
		a.bytes += size.Bytes
	}
	l.users++
}

// leave stops counting the layers of a pool, except where another one uses them. mu is held.
func (a *account) leave(p *pool) {
	for _, used := range p.layers {
		l := a.layers[used.ID]
		if l.users--; l.users == 0 {
			a.bytes -= l.size.Bytes
			delete(a.layers, used.ID)
		}
	}
	p.layers, p.bytes = nil, 0
}

// trim forgets idle pools if there are too many.
func (a *account) trim() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.whole || len(a.pools) < poolsMax {
		return
	}
	for id, p := range a.pools {
		if p.holds == 0 {
			a.leave(p)
			delete(a.pools, id)
		}
	}
}

// again counts the layers of a pool anew, if it is counted.
func (a *account) again(ctx context.Context, id odb.PoolID) error {
	release, err := a.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	a.mu.Lock()
	p := a.pools[id]
	a.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := a.read(ctx, id); !errors.Is(err, odb.ErrNoPool) {
		return err
	}
	a.remove(id)
	return nil
}

// drop stops counting a pool.
func (a *account) drop(ctx context.Context, id odb.PoolID) error {
	release, err := a.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	a.remove(id)
	return nil
}

// remove is drop for a caller that has the turn.
func (a *account) remove(id odb.PoolID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pools[id]; p != nil {
		a.leave(p)
		p.gone = true
		delete(a.pools, id)
	}
}

// doubt makes the next write count the organization again.
func (a *account) doubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.whole = false
	for _, p := range a.pools {
		p.version = 0
	}
}

// usage returns the layers of a pool, and the bytes of the organization.
func (a *account) usage(id odb.PoolID) (layers []SizedLayer, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pools[id]; p != nil {
		for _, l := range p.layers {
			layers = append(layers, SizedLayer{l, a.layers[l.ID].size})
		}
	}
	return layers, a.bytes
}

// measure counts the layers of a pool.
func measure(ctx context.Context, objects *odb.Store, id odb.PoolID) (sized []SizedLayer, err error) {
	err = fair.Do(ctx, func(ctx context.Context) error {
		layers, _, err := objects.Layers(ctx, id)
		for _, l := range layers {
			size, err := objects.Measure(ctx, l, fair.Pause)
			if err != nil {
				return err
			}
			sized = append(sized, SizedLayer{l, size})
		}
		return err
	})
	return sized, err
}
