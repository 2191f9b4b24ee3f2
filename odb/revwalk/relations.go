package revwalk

import (
	"cmp"
	"context"
	"slices"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// Relations answers how commits of a view are related. It keeps the commits that it has met, so
// that all questions together read each of them once. It belongs to one goroutine.
type Relations struct {
	graph *Graph
	// marked are the commits whose marks the next question must not see.
	marked []int32
	// bases are the answers of MergeBases.
	bases map[[2]object.ID][]object.ID
}

// NewRelations returns the relations of the commits of v.
func NewRelations(v *odb.View) *Relations {
	return &Relations{graph: NewGraph(v), bases: make(map[[2]object.ID][]object.ID)}
}

// marksOfQuestion are those that a question leaves behind until [Relations.forget].
const marksOfQuestion = markOne | markTwo | markStale | MarkSeen | markQueued

// forget removes the marks of the question that was answered.
func (r *Relations) forget() {
	for _, n := range r.marked {
		r.graph.nodes[n].marks &^= marksOfQuestion
	}
	r.marked = r.marked[:0]
}

// set adds marks of a question to n.
func (r *Relations) set(n int32, m marks) {
	node := &r.graph.nodes[n]
	if node.marks&marksOfQuestion == 0 {
		r.marked = append(r.marked, n)
	}
	node.marks |= m
}

// MergeBases returns the best common ancestors of two commits, newest first: those of git
// merge-base --all. There are none for unrelated histories, and more than one after criss-cross
// merges. The slice is shared and read-only: a question that was asked before has its answer.
// Errors: [odb.ErrNotFound], [ErrNotCommit].
func (r *Relations) MergeBases(ctx context.Context, a, b object.ID) ([]object.ID, error) {
	if known, ok := r.bases[[2]object.ID{a, b}]; ok {
		return known, nil
	}
	defer r.forget()
	p, err := r.paint(ctx, a, b, markStale)
	if err != nil {
		return nil, err
	}
	var found []int32
	// When all queued commits of one side lie behind merge bases, all other common ancestors do, too.
	for p.one > 0 && p.two > 0 {
		n, m := p.next()
		if m == markOne|markTwo {
			found = append(found, n)
			m |= markStale
		}
		if err := p.pass(ctx, n, m); err != nil {
			return nil, err
		}
	}
	bases, _ := r.graph.newestFirst(found)
	r.bases[[2]object.ID{a, b}] = bases
	return bases, nil
}

// Ahead returns the number of commits reachable from a and not from b. Errors: [odb.ErrNotFound],
// [ErrNotCommit].
func (r *Relations) Ahead(ctx context.Context, a, b object.ID) (count int, err error) {
	defer r.forget()
	p, err := r.paint(ctx, a, b, markTwo)
	if err != nil {
		return 0, err
	}
	for p.one > 0 {
		n, m := p.next()
		if m == markOne {
			count++
		}
		if err := p.pass(ctx, n, m); err != nil {
			return 0, err
		}
	}
	return count, nil
}

// IsAncestor reports whether ancestor is reachable from descendant; a commit is its own ancestor.
// It visits only commits of a higher generation number than ancestor's. Errors: [odb.ErrNotFound],
// [ErrNotCommit].
func (r *Relations) IsAncestor(ctx context.Context, ancestor, descendant object.ID) (bool, error) {
	defer r.forget()
	to, err := r.graph.Tip(ctx, ancestor)
	if err != nil {
		return false, err
	}
	from, err := r.graph.Tip(ctx, descendant)
	if err != nil {
		return false, err
	}
	r.set(to, markTwo)
	floor := r.graph.Generation(to)
	stack := []int32{from}
	for len(stack) > 0 {
		if err := fair.Pause(ctx); err != nil {
			return false, err
		}
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if n == to {
			return true, nil
		}
		if r.graph.Has(n, MarkSeen) {
			continue
		}
		r.set(n, MarkSeen)
		if err := r.graph.Load(ctx, n); err != nil {
			return false, err
		}
		if r.graph.ranksAtMost(n, floor) {
			continue
		}
		parents := r.graph.ParentsOf(n)
		for i := range parents {
			stack = append(stack, parents[len(parents)-1-i]) // the first parent comes off first
		}
	}
	return false, nil
}

// Add makes a new commit known that the view may not hold yet. Its parents are known or in the
// view.
func (r *Relations) Add(c Commit) {
	r.graph.fill(r.graph.Number(c.ID), &c.GraphRow)
}

// Commit returns a commit that has been met or that the view holds. Errors: [odb.ErrNotFound].
func (r *Relations) Commit(ctx context.Context, id object.ID) (Commit, error) {
	n := r.graph.Number(id)
	if err := r.graph.Load(ctx, n); err != nil {
		return Commit{}, err
	}
	return r.graph.commit(n), nil
}

// newestFirst sorts commits by date, the newest first and those of a date as they are, and returns
// their IDs. alike reports whether two have the same date and generation number.
func (h *Graph) newestFirst(found []int32) (ids []object.ID, alike bool) {
	slices.SortStableFunc(found, func(a, b int32) int { return cmp.Compare(h.nodes[b].seconds, h.nodes[a].seconds) })
	for i, n := range found {
		ids = append(ids, h.ID(n))
		if i > 0 {
			before := &h.nodes[found[i-1]]
			alike = alike || before.seconds == h.nodes[n].seconds && before.generation == h.nodes[n].generation
		}
	}
	return ids, alike
}

// MergeBases is [Relations.MergeBases] for one question.
func MergeBases(ctx context.Context, v *odb.View, a, b object.ID) ([]object.ID, error) {
	return NewRelations(v).MergeBases(ctx, a, b)
}

// IsAncestor is [Relations.IsAncestor] for one question.
func IsAncestor(ctx context.Context, v *odb.View, ancestor, descendant object.ID) (bool, error) {
	return NewRelations(v).IsAncestor(ctx, ancestor, descendant)
}
