package ingest

import (
	"context"
	"sync"
	"sync/atomic"

	"packhorse/odb/fair"
	"packhorse/odb/file"
	"packhorse/odb/rescue"
	"packhorse/pack/object"
)

// resolver resolves delta families, from the objects at their roots down, on all cores.
//
// Each worker goes down one family with a stack of its own. It holds an object while deltas against
// it are left. The last delta replaces the object, so a straight chain holds one object at a time.
// When the stack outgrows the worker's share of memory, it drops the lowest objects and inflates
// them again when it needs them. A worker that runs out of families gets branches of another
// worker's.
type resolver struct {
	in      *Ingest
	family  family
	workers int
	left    int64 // deltas that were unresolved at the start
	done    atomic.Int64
	idle    atomic.Int32

	mu       sync.Mutex // guards the fields below
	changed  *sync.Cond
	branches []branch // given and not taken yet
	cursor   int      // roots before it were taken
	active   int
	err      error
}

// branch is an object with the deltas against it that are not resolved yet.
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
	working, cancel := context.WithCancel(fair.Beside(ctx))
	defer cancel()
	r.branches = roots
	r.active = r.workers
	var wait sync.WaitGroup
	workers := make([]*resolveWorker, r.workers)
	for i := range workers {
		w := newResolveWorker(r)
		workers[i] = w
		rescue.Go(&wait, func() error {
			if err := w.run(working); err != nil {
				return err
			}
			return w.x.finish(working)
		}, func(err error) {
			r.fail(err)
			cancel()
		})
	}
	_ = fair.Rest(ctx, func() error { wait.Wait(); return nil }) // the workers keep their errors
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

// next returns work for an idle worker, or false when there is none and no worker is left that
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

// pick returns a branch, or the next root. mu is held.
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

// give passes a branch to an idle worker.
func (r *resolver) give(b branch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.branches = append(r.branches, b)
	r.changed.Signal()
}

// content is the content of an object: in memory, or in a scratch file when it is large. The zero
// content is absent.
type content struct {
	data   []byte
	shared bool // the holder must not reuse data
	spool  file.Scratch
	size   int64
}

func (c *content) held() bool { return c.data != nil || c.spool != nil }
