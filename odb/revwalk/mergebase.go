package revwalk

import (
	"cmp"
	"context"
	"math"
	"slices"

	"packhorse/odb"
	"packhorse/pack/object"
)

// painting walks from two sides, from the highest generation number down. A commit leaves the queue
// after all commits that reach it. So its marks are final then, whatever the clocks say.
type painting struct {
	history  *Graph
	queue    Queue
	closed   marks // commits with this mark count for no side
	one, two int   // commits in the queue that count for the first and the second side
}

// newPainting marks a with markOne and b with markTwo.
func newPainting(ctx context.Context, v *odb.View, a, b object.ID, closed marks) (*painting, error) {
	p := &painting{history: NewGraph(v), closed: closed}
	for i, id := range [2]object.ID{a, b} {
		n, err := p.history.Tip(ctx, id)
		if err != nil {
			return nil, err
		}
		if err := p.mark(ctx, n, [2]marks{markOne, markTwo}[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// mark adds m to commit n and queues it when it is new.
func (p *painting) mark(ctx context.Context, n int32, m marks) error {
	if err := p.history.Load(ctx, n); err != nil {
		return err
	}
	if err := p.history.Rank(ctx, n); err != nil {
		return err
	}
	node := &p.history.nodes[n]
	p.count(node.marks, -1)
	node.marks |= m
	if node.marks&MarkSeen == 0 {
		node.marks |= MarkSeen | markQueued
		p.queue.Push(n, int64(node.generation))
	}
	p.count(node.marks, 1)
	return nil
}

// count adds by to the sides that a commit with marks m counts for.
func (p *painting) count(m marks, by int) {
	if m&markQueued == 0 || m&p.closed != 0 {
		return
	}
	if m&markOne != 0 {
		p.one += by
	}
	if m&markTwo != 0 {
		p.two += by
	}
}

// next removes the next commit and returns which of markOne, markTwo and markStale it has. The
// queue must not be empty.
func (p *painting) next() (n int32, m marks) {
	n = p.queue.Pop()
	node := &p.history.nodes[n]
	p.count(node.marks, -1)
	node.marks &^= markQueued
	return n, node.marks & (markOne | markTwo | markStale)
}

// pass adds the marks m of n to its parents.
func (p *painting) pass(ctx context.Context, n int32, m marks) error {
	for i := range p.history.nodes[n].parentCount {
		if err := p.mark(ctx, p.history.ParentsOf(n)[i], m); err != nil {
			return err
		}
	}
	return nil
}

// MergeBases returns the best common ancestors of two commits, newest first: those of git
// merge-base --all. There are none for unrelated histories, and more than one after criss-cross
// merges. Errors: [odb.ErrNotFound].
func MergeBases(ctx context.Context, v *odb.View, a, b object.ID) ([]object.ID, error) {
	p, err := newPainting(ctx, v, a, b, markStale)
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
	bases, _ := p.history.newestFirst(found)
	return bases, nil
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

// Ahead returns the number of commits reachable from a and not from b. Errors: [odb.ErrNotFound].
func Ahead(ctx context.Context, v *odb.View, a, b object.ID) (count int, err error) {
	p, err := newPainting(ctx, v, a, b, markTwo)
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
// It visits only commits of a higher generation number than ancestor's. Errors: [odb.ErrNotFound].
func IsAncestor(ctx context.Context, v *odb.View, ancestor, descendant object.ID) (bool, error) {
	h := NewGraph(v)
	to, err := h.Tip(ctx, ancestor)
	if err != nil {
		return false, err
	}
	from, err := h.Tip(ctx, descendant)
	if err != nil {
		return false, err
	}
	h.Set(to, markTwo)
	return h.reaches(ctx, from, h.nodes[to].generation)
}

// AllReach reports whether each of from reaches one of targets or a parent of one: a client that
// has a commit has its parents. Commits in shallow count as having none. IDs in from and targets
// that lead to a tree or a blob are skipped.
//
// As git does, it does not look behind a commit that is older than every target, unless it is in
// from: a client whose commits lie beside the path may still name a commit closer than those
// parents. It visits only commits of a higher generation number than the lowest target, each once.
// Errors: [odb.ErrNotFound].
func AllReach(ctx context.Context, v *odb.View, from, targets, shallow []object.ID) (bool, error) {
	h := NewGraph(v)
	h.CutAt(shallow)
	commits, err := h.CommitsOf(ctx, targets)
	if err != nil {
		return false, err
	}
	floor, oldest := uint32(math.MaxUint32), int64(math.MaxInt64)
	mark := func(n int32) error {
		err := h.Rank(ctx, n)
		h.Set(n, markTwo)
		floor = min(floor, h.nodes[n].generation)
		return err
	}
	for _, id := range commits {
		n := h.Number(id)
		if err := mark(n); err != nil {
			return false, err
		}
		oldest = min(oldest, h.nodes[n].seconds)
		for i := range h.nodes[n].parentCount {
			if err := mark(h.ParentsOf(n)[i]); err != nil {
				return false, err
			}
		}
	}
	starts, err := h.CommitsOf(ctx, from)
	if err != nil {
		return false, err
	}
	for _, id := range starts {
		if reached, err := h.leadsTo(ctx, h.Number(id), floor, oldest); !reached || err != nil {
			return false, err
		}
	}
	return true, nil
}

// leadsTo is reaches for many starts: it adds markTwo to the path to a reached commit, so it visits
// no commit twice. It looks behind a commit that is older than oldest only if that is the start.
func (h *Graph) leadsTo(ctx context.Context, n int32, floor uint32, oldest int64) (bool, error) {
	type step struct{ n, next int32 }
	way := []step{{n: n}}
	for len(way) > 0 {
		top := &way[len(way)-1]
		if top.next == 0 {
			if h.Has(top.n, markTwo) {
				for _, s := range way {
					h.Set(s.n, markTwo)
				}
				return true, nil
			}
			if err := h.Load(ctx, top.n); err != nil {
				return false, err
			}
			if h.Has(top.n, MarkSeen) || h.ranksAtMost(top.n, floor) || len(way) > 1 && h.nodes[top.n].seconds < oldest {
				way = way[:len(way)-1]
				continue
			}
			h.Set(top.n, MarkSeen)
		}
		parents := h.ParentsOf(top.n)
		if int(top.next) == len(parents) {
			way = way[:len(way)-1]
			continue
		}
		top.next++
		way = append(way, step{n: parents[top.next-1]})
	}
	return false, nil
}

// reaches reports whether n reaches a commit with markTwo. All of those rank at least floor.
func (h *Graph) reaches(ctx context.Context, n int32, floor uint32) (bool, error) {
	stack := []int32{n}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if h.Has(n, markTwo) {
			return true, nil
		}
		if h.Has(n, MarkSeen) {
			continue
		}
		h.Set(n, MarkSeen)
		if err := h.Load(ctx, n); err != nil {
			return false, err
		}
		if h.ranksAtMost(n, floor) {
			continue
		}
		parents := h.ParentsOf(n)
		for i := range parents {
			stack = append(stack, parents[len(parents)-1-i]) // the first parent comes off first
		}
	}
	return false, nil
}
