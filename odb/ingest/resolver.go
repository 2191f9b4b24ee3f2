package ingest

import (
	"context"
	"sync"
	"sync/atomic"

	"packhorse/odb/file"
	"packhorse/odb/rescue"
	"packhorse/pack/object"
)

// resolver resolves delta families, from the objects at their roots down, on all cores.
//
// Each worker goes down one family with a stack of its own. An object is held while deltas against
// it are left; the last delta replaces it, so that a straight chain holds one object at a time.
// When the stack outgrows the worker's share of memory its lowest objects are dropped and inflated
// again when they are needed. A worker that runs out of families is given branches of another's.
type resolver struct {
	in      *Ingest
	family  family
	workers int
	left    int64 // deltas that were unresolved at the start
	done    atomic.Int64
	idle    atomic.Int32

	mu       sync.Mutex // guards the fields below
	changed  *sync.Cond
	branches []branch // given, and not taken yet
	cursor   int      // roots before it were taken
	active   int
	err      error
}

// branch is an object and the deltas against it that are still to be resolved.
type branch struct {
	ordinal  uint32
	depth    int
	t        object.Type
	content  content
	children []uint32
}

func newResolver(in *Ingest, left int) *resolver {
	r := &resolver{in: in, family: in.table.families(), workers: in.laneCount(left), left: int64(left)}
	r.changed = sync.NewCond(&r.mu)
	return r
}

// run resolves all families whose root is a whole entry of the pack, and those of the given roots.
func (r *resolver) run(ctx context.Context, roots []branch) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.branches = roots
	r.active = r.workers
	var wait sync.WaitGroup
	workers := make([]*resolveWorker, r.workers)
	for i := range workers {
		w := newResolveWorker(r)
		workers[i] = w
		rescue.Go(&wait, func() error {
			if err := w.run(ctx); err != nil {
				return err
			}
			return w.x.finish(ctx)
		}, func(err error) {
			r.fail(err)
			cancel()
		})
	}
	wait.Wait()
	for _, w := range workers {
		r.in.table.setDone(w.x.done)
	}
	return r.err
}

func (r *resolver) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	r.changed.Broadcast()
}

// next returns work for a worker that has none, or false when there is none and nobody is left who
// could give some.
func (r *resolver) next() (branch, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active--
	r.idle.Add(1)
	for r.err == nil {
		if b, ok := r.pick(); ok {
			r.active++
			r.idle.Add(-1)
			return b, true
		}
		if r.active == 0 {
			break
		}
		r.changed.Wait()
	}
	r.changed.Broadcast()
	return branch{}, false
}

// pick is called with mu held.
func (r *resolver) pick() (branch, bool) {
	if last := len(r.branches) - 1; last >= 0 {
		b := r.branches[last]
		r.branches = r.branches[:last]
		return b, true
	}
	table := &r.in.table
	for ; r.cursor < table.count(); r.cursor++ {
		root := uint32(r.cursor)
		kind := table.states[root].kind()
		if kind.IsDelta() || len(r.family.of(root)) == 0 {
			continue
		}
		r.cursor++
		return branch{ordinal: root, t: kind.Type(), children: r.family.of(root)}, true
	}
	return branch{}, false
}

// give hands a branch to whoever is idle.
func (r *resolver) give(b branch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.branches = append(r.branches, b)
	r.changed.Signal()
}

// content is what an object contains: in memory, or in a scratch file when it is large. The zero
// content is not there.
type content struct {
	data   []byte
	shared bool // data is not the holder's to use again
	spool  file.Scratch
	size   int64
}

func (c *content) held() bool { return c.data != nil || c.spool != nil }
