package ingest

import (
	"context"
	"errors"
	"slices"

	"packhorse/odb/fair"
	"packhorse/odb/progress"
	"packhorse/pack/object"
)

// resolveWorker is one goroutine of a resolver. stack holds branches of one family from the root
// down, without those that have no more children. The stack owns their contents.
type resolveWorker struct {
	r       *resolver
	in      *Ingest
	x       *examiner
	buffers buffers
	packed  []byte
	delta   []byte
	stack   []branch
	memory  int64 // bytes of content in stack
	share   int64 // bound of memory
}

func newResolveWorker(r *resolver) *resolveWorker {
	return &resolveWorker{
		r: r, in: r.in, x: newExaminer(r.in, int(r.left)), share: r.in.memory.bytes.Load() / int64(r.workers),
	}
}

func (w *resolveWorker) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, w.clear()) }()
	for {
		b, ok := w.r.next()
		if !ok {
			return nil
		}
		w.push(b)
		if err := fair.Do(ctx, w.descend); err != nil {
			return err
		}
	}
}

// descend resolves everything below the branch on the stack.
func (w *resolveWorker) descend(ctx context.Context) error {
	for len(w.stack) > 0 {
		if err := w.in.options.Own.rest(ctx); err != nil {
			return err
		}
		if w.r.idle.Load() > 0 {
			w.giveAway()
		}
		top := &w.stack[len(w.stack)-1]
		if len(top.children) == 0 {
			if err := w.pop(); err != nil {
				return err
			}
			continue
		}
		if err := w.step(ctx, top); err != nil {
			return err
		}
	}
	return nil
}

// step resolves one delta against the top of the stack.
func (w *resolveWorker) step(ctx context.Context, top *branch) error {
	child := top.children[0]
	top.children = top.children[1:]
	if err := w.restore(ctx, len(w.stack)-1); err != nil {
		return err
	}
	next, err := w.build(ctx, top, child)
	if err != nil {
		return err
	}
	if len(top.children) == 0 {
		if err := w.pop(); err != nil {
			return errors.Join(err, w.release(&next.content))
		}
	}
	if len(next.children) == 0 {
		return w.release(&next.content)
	}
	w.push(next)
	return w.trim()
}

// build builds the object of a delta against the top of the stack, and examines it unless a lane
// has done so.
func (w *resolveWorker) build(ctx context.Context, top *branch, child uint32) (branch, error) {
	table := &w.in.table
	depth := top.depth + 1
	if err := w.in.checkDepth(table.offsets[child], depth); err != nil {
		return branch{}, err
	}
	next := branch{ordinal: child, depth: depth, t: top.t, children: w.r.family.of(child)}
	if table.states[child].done() {
		made, err := w.apply(ctx, top.t, &top.content, child, nil)
		next.content = made
		return next, err
	}
	// The segment summary needs every link; hot objects have no summary.
	if len(top.content.data) > 0 && top.t == object.TypeTree && w.in.external(top.ordinal) && w.in.intake.segment == nil {
		w.x.assumeTree(top.content.data)
	}
	made, id, err := w.examine(ctx, top, child)
	if err != nil {
		return branch{}, err
	}
	next.content = made
	w.tell(ctx, int64(w.in.table.deltas)-w.r.left+w.r.done.Add(1))
	refs, err := w.in.takeRefs(id, child)
	if err != nil {
		return next, errors.Join(err, w.release(&next.content))
	}
	if len(refs) > 0 {
		next.children = append(slices.Clone(next.children), refs...)
	}
	w.leavesFirst(next.children)
	return next, nil
}

// tell reports the number of resolved deltas. It rests while a client is told.
func (w *resolveWorker) tell(ctx context.Context, done int64) {
	if done%progress.Steps != 0 {
		return
	}
	_ = fair.Rest(ctx, func() error {
		w.in.progress.Step(phaseResolving, done, int64(w.in.table.deltas))
		return nil
	})
}

// leavesFirst moves the children without children of their own to the front: their contents need
// not be held.
func (w *resolveWorker) leavesFirst(children []uint32) {
	leaves := 0
	for i, child := range children {
		if len(w.r.family.of(child)) == 0 {
			children[leaves], children[i] = children[i], children[leaves]
			leaves++
		}
	}
}

func (w *resolveWorker) push(b branch) {
	w.memory += int64(cap(b.content.data))
	w.stack = append(w.stack, b)
}

func (w *resolveWorker) pop() error {
	last := len(w.stack) - 1
	err := w.drop(&w.stack[last])
	w.stack[last] = branch{}
	w.stack = w.stack[:last]
	return err
}

// drop releases the content of a branch on the stack.
func (w *resolveWorker) drop(b *branch) error {
	w.memory -= int64(cap(b.content.data))
	return w.release(&b.content)
}

// release releases a content that is not on the stack.
func (w *resolveWorker) release(c *content) error {
	if c.data != nil && !c.shared {
		w.buffers.put(c.data)
	}
	var err error
	if c.spool != nil {
		err = c.spool.Close()
	}
	*c = content{}
	return err
}

// trim drops contents from the bottom of the stack, where they are needed last, until the others
// fit the worker's share.
func (w *resolveWorker) trim() error {
	for i := 0; i < len(w.stack)-1 && w.memory > w.share; i++ {
		if err := w.drop(&w.stack[i]); err != nil {
			return err
		}
	}
	return nil
}

// clear empties the stack after an error.
func (w *resolveWorker) clear() error {
	var err error
	for len(w.stack) > 0 {
		err = errors.Join(err, w.pop())
	}
	return err
}

// giveAway gives away half of the lowest branch that has deltas left, if others remain for this
// worker.
func (w *resolveWorker) giveAway() {
	total := 0
	for i := range w.stack {
		total += len(w.stack[i].children)
	}
	if total < 2 {
		return
	}
	for i := range w.stack {
		from := &w.stack[i]
		n := len(from.children)
		if n == 0 {
			continue
		}
		if n < total {
			n++ // the rest of the stack remains
		}
		kept := len(from.children) - n/2
		given := branch{ordinal: from.ordinal, depth: from.depth, t: from.t, children: from.children[kept:]}
		if from.content.data != nil {
			from.content.shared = true
			given.content = from.content
		}
		from.children = from.children[:kept]
		w.r.give(given)
		return
	}
}
