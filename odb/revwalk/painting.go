package revwalk

import (
	"context"

	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// painting walks from two sides, from the highest generation number down. A commit leaves the queue
// after all commits that reach it. So its marks are final then, whatever the clocks say.
type painting struct {
	relations *Relations
	graph     *Graph
	queue     Queue
	closed    marks // commits with this mark count for no side
	one, two  int   // commits in the queue that count for the first and the second side
}

// paint marks a with markOne and b with markTwo.
func (r *Relations) paint(ctx context.Context, a, b object.ID, closed marks) (*painting, error) {
	p := &painting{relations: r, graph: r.graph, closed: closed}
	for i, id := range [2]object.ID{a, b} {
		n, err := p.graph.Tip(ctx, id)
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
	if err := p.graph.Rank(ctx, n); err != nil {
		return err
	}
	node := &p.graph.nodes[n]
	p.count(node.marks, -1)
	fresh := node.marks&MarkSeen == 0
	if fresh {
		m |= MarkSeen | markQueued
		p.queue.Push(n, int64(node.generation))
	}
	p.relations.set(n, m)
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
	node := &p.graph.nodes[n]
	p.count(node.marks, -1)
	node.marks &^= markQueued
	return n, node.marks & (markOne | markTwo | markStale)
}

// pass adds the marks m of n to its parents.
func (p *painting) pass(ctx context.Context, n int32, m marks) error {
	if err := fair.Pause(ctx); err != nil {
		return err
	}
	for i := range p.graph.ParentCount(n) {
		if err := p.mark(ctx, p.graph.ParentsOf(n)[i], m); err != nil {
			return err
		}
	}
	return nil
}
