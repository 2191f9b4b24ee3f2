package revwalk

import (
	"context"
	"iter"
	"math"
	"slices"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Order is the order in which a walk gives commits.
type Order uint8

const (
	// OrderDate is the order of git rev-list and git log: newest committer date first, among the
	// commits that have a child which has been given.
	OrderDate Order = iota
	// OrderDateTopo is --date-order: by committer date, but no commit before all of its children.
	OrderDateTopo
	// OrderTopo is --topo-order: no commit before all of its children, and lines of history stay
	// together.
	OrderTopo
)

// WalkOptions say which commits a walk gives: those reachable from Tips and not from Hide.
type WalkOptions struct {
	// Tips and Hide are commits, or tags that lead to one.
	Tips, Hide []object.ID
	Order      Order
	// FirstParent follows only the first parent of the given commits, as --first-parent does; Hide
	// hides along all parents.
	FirstParent bool
	// Since ends the walk at commits older than this, as --max-age does; 0 ends it nowhere.
	Since int64
	// Shallow are the commits that count as having no parents.
	Shallow []object.ID
}

// Commit is a commit as a walk gives it.
type Commit struct {
	ID object.ID
	odb.GraphRow
}

// Walk gives the commits that options ask for, equal to those of git rev-list in set and order,
// also where clocks ran backwards: it finds hidden commits by committer date with the same margin.
// The rows omit the parents of commits in options.Shallow.
//
// Without Hide and a topological order, Walk gives commits as it finds them; otherwise it finishes
// the walk first. Memory follows the visited part. Errors end the walk: [odb.ErrNotFound] for a
// tip, and those of reading the graph.
func Walk(ctx context.Context, v *odb.View, options WalkOptions) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		w := NewWalker(v, options)
		if err := w.Start(ctx, options.Tips, options.Hide); err != nil {
			yield(Commit{}, err)
			return
		}
		if !w.limited && options.Order == OrderDate {
			w.stream(ctx, yield)
			return
		}
		list, err := w.limit(ctx)
		if err != nil {
			yield(Commit{}, err)
			return
		}
		if options.Order != OrderDate {
			list = w.Graph.sortTopo(list, options.Order)
		}
		for _, n := range list {
			if !yield(w.Graph.commit(n), nil) {
				return
			}
		}
	}
}

// Walker is the state of one walk of commits.
type Walker struct {
	Graph       *Graph
	queue       Queue
	shown       int // commits in the queue that are not hidden
	firstParent bool
	since       int64
	limited     bool // something is hidden
	// simplify, if set, may remove parents of a commit before the walk follows them. It is not for
	// walks that hide something.
	simplify func(ctx context.Context, h *Graph, n int32) error
}

// NewWalker returns a walker over v. [Walker.Start] gives it its commits; options.Tips and Hide are
// ignored.
func NewWalker(v *odb.View, options WalkOptions) *Walker {
	w := &Walker{Graph: NewGraph(v), firstParent: options.FirstParent, since: math.MinInt64}
	if options.Since != 0 {
		w.since = options.Since
	}
	w.Graph.CutAt(options.Shallow)
	return w
}

// Start queues the tips, then the hidden commits. As in git, a commit on both sides keeps its first
// place. Errors: [odb.ErrNotFound], [ErrNotCommit].
func (w *Walker) Start(ctx context.Context, tips, hide []object.ID) error {
	type start struct {
		n      int32
		hidden bool
	}
	starts := make([]start, 0, len(tips)+len(hide))
	for i, ids := range [2][]object.ID{tips, hide} {
		for _, id := range ids {
			n, err := w.Graph.Tip(ctx, id)
			if err != nil {
				return err
			}
			starts = append(starts, start{n, i == 1})
		}
	}
	for _, s := range starts {
		if s.hidden {
			w.limited = true
			w.hide(s.n)
			w.hideParents(s.n)
		}
	}
	for _, s := range starts {
		if !w.Graph.Has(s.n, MarkSeen) {
			w.put(s.n)
		}
	}
	return nil
}

// put queues commit n, which is loaded and has not been seen.
func (w *Walker) put(n int32) {
	w.Graph.Set(n, MarkSeen|markQueued)
	if !w.Graph.Has(n, MarkHidden) {
		w.shown++
	}
	w.queue.Push(n, w.Graph.nodes[n].seconds)
}

// take removes the next commit from the queue.
func (w *Walker) take() int32 {
	n := w.queue.Pop()
	w.Graph.nodes[n].marks &^= markQueued
	if !w.Graph.Has(n, MarkHidden) {
		w.shown--
	}
	return n
}

// hide marks commit n as hidden.
func (w *Walker) hide(n int32) {
	node := &w.Graph.nodes[n]
	if node.marks&(MarkHidden|markQueued) == markQueued {
		w.shown--
	}
	node.marks |= MarkHidden
}

// hideParents hides the commits reachable from n that have been read; the walk passes the mark on
// from there.
func (w *Walker) hideParents(n int32) {
	stack := slices.Clone(w.Graph.ParentsOf(n))
	for len(stack) > 0 {
		p := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !w.Graph.Has(p, MarkHidden) {
			w.hide(p)
			stack = append(stack, w.Graph.ParentsOf(p)...)
		}
	}
}

// expand queues the parents of n, which has left the queue.
func (w *Walker) expand(ctx context.Context, n int32) error {
	h := w.Graph
	if h.Has(n, markAdded) {
		return nil
	}
	h.Set(n, markAdded)
	if w.simplify != nil {
		if err := w.simplify(ctx, h, n); err != nil {
			return err
		}
	}
	hidden := h.Has(n, MarkHidden)
	for _, p := range h.ParentsOf(n) {
		if hidden {
			w.hide(p)
		}
		if err := h.Load(ctx, p); err != nil {
			return err
		}
		if hidden {
			w.hideParents(p)
		}
		if !h.Has(p, MarkSeen) {
			w.put(p)
		}
		if w.firstParent && !hidden {
			break
		}
	}
	return nil
}

// next takes the next commit of a walk that hides nothing.
func (w *Walker) next(ctx context.Context) (n int32, ok bool, err error) {
	for w.queue.Len() > 0 {
		n := w.take()
		if w.Graph.nodes[n].seconds < w.since {
			continue
		}
		return n, true, w.expand(ctx, n)
	}
	return 0, false, nil
}

// stream gives commits as it finds them.
func (w *Walker) stream(ctx context.Context, yield func(Commit, error) bool) {
	for {
		n, ok, err := w.next(ctx)
		if err != nil {
			yield(Commit{}, err)
			return
		}
		if !ok || !yield(w.Graph.commit(n), nil) {
			return
		}
	}
}

// List returns all commits of the walk by date.
func (w *Walker) List(ctx context.Context) ([]int32, error) {
	if w.limited {
		return w.limit(ctx)
	}
	var list []int32
	for {
		n, ok, err := w.next(ctx)
		if !ok || err != nil {
			return list, err
		}
		list = append(list, n)
	}
}

// limit runs the walk to its end and returns the commits that are not hidden, by date. It is git's
// limit_list: the walk continues until all queued commits are hidden and older than the commits to
// give, and then for a margin of five more, against clocks that ran backwards.
func (w *Walker) limit(ctx context.Context) ([]int32, error) {
	const margin = 5
	h := w.Graph
	left, date := margin, int64(math.MaxInt64)
	var list []int32
	for w.queue.Len() > 0 {
		n := w.take()
		if h.nodes[n].seconds < w.since {
			w.hide(n)
		}
		if err := w.expand(ctx, n); err != nil {
			return nil, err
		}
		if !h.Has(n, MarkHidden) {
			date = h.nodes[n].seconds
			list = append(list, n)
			continue
		}
		w.hideParents(n)
		if w.queue.Len() == 0 {
			break
		}
		if newest := w.queue.firstKey(); date <= newest || w.shown > 0 {
			left = margin
		} else if left--; left == 0 {
			break
		}
	}
	return slices.DeleteFunc(list, func(n int32) bool { return h.Has(n, MarkHidden) }), nil
}

// sortTopo sorts a list of commits, which is sorted by date, into a topological order.
func (h *Graph) sortTopo(list []int32, order Order) []int32 {
	degree := make(map[int32]int32, len(list)) // 1 + children in the list that have not been given
	for _, n := range list {
		degree[n] = 1
	}
	for _, n := range list {
		for _, p := range h.ParentsOf(n) {
			if degree[p] > 0 {
				degree[p]++
			}
		}
	}
	ready := topoQueue{history: h, byDate: order == OrderDateTopo}
	for _, n := range list {
		if degree[n] == 1 {
			ready.push(n)
		}
	}
	if !ready.byDate {
		slices.Reverse(ready.stack)
	}
	sorted := make([]int32, 0, len(list))
	for n, ok := ready.pop(); ok; n, ok = ready.pop() {
		for _, p := range h.ParentsOf(n) {
			if degree[p] == 0 {
				continue
			}
			if degree[p]--; degree[p] == 1 {
				ready.push(p)
			}
		}
		sorted = append(sorted, n)
	}
	return sorted
}

// topoQueue holds commits whose children have all been given: the latest first, or by date.
type topoQueue struct {
	history *Graph
	byDate  bool
	stack   []int32
	dates   Queue
}

func (q *topoQueue) push(n int32) {
	if q.byDate {
		q.dates.Push(n, q.history.nodes[n].seconds)
		return
	}
	q.stack = append(q.stack, n)
}

func (q *topoQueue) pop() (n int32, ok bool) {
	if q.byDate {
		if q.dates.Len() == 0 {
			return 0, false
		}
		return q.dates.Pop(), true
	}
	if len(q.stack) == 0 {
		return 0, false
	}
	n = q.stack[len(q.stack)-1]
	q.stack = q.stack[:len(q.stack)-1]
	return n, true
}
