package fair

import "container/heap"

// node is the root, an organization, a repository or a token, with its use and its waiters.
type node struct {
	parent   *node
	key      string
	children map[string]*node
	limit    int64 // of used
	used     int64
	served   int64 // when it was served last, or created
	arrival  int64 // of the last waiter
	waiting  int   // below it
	held     int   // turns below it
	start    int64 // use of the child that was served last
	made     int   // nodes created below the root since the last forget
	blocked  bool  // it is at its limit and waits for a release below it

	next  ranking // children with a waiter to admit, in the order of service; without blocked ones
	crowd ranking // children with waiters, the greatest number first

	nextAt, crowdAt int // places in the rankings of the parent, counted from 1; 0 is none

	first, last *waiter // of a token
}

// idleMax is the number of new nodes after which idle ones are forgotten: nodes without use and
// without waiters.
const idleMax = 1024

// find returns the node of a token below the root. A new one counts as served at this tick, and as
// much as the sibling that was served last: it has saved nothing up.
func (n *node) find(t Tenant, tick int64) *node {
	if n.made > idleMax {
		n.made = 0
		n.forget()
	}
	c := n
	for _, key := range [...]string{t.Org, t.Repo, t.Token} {
		below := c.children[key]
		if below == nil {
			n.made++
			below = c.add(key, tick)
		}
		c = below
	}
	return c
}

func (n *node) add(key string, tick int64) *node {
	if n.children == nil {
		n.children = make(map[string]*node)
		n.next = ranking{before: sooner, at: func(c *node) *int { return &c.nextAt }}
		n.crowd = ranking{before: larger, at: func(c *node) *int { return &c.crowdAt }}
	}
	c := &node{parent: n, key: key, served: tick, used: n.start}
	n.children[key] = c
	return c
}

// forget drops the nodes below that are idle.
func (n *node) forget() {
	for key, c := range n.children {
		c.forget()
		if (c.used == 0 || c.parent.start > 0 && c.used <= c.parent.start) && c.waiting == 0 && c.held == 0 &&
			len(c.children) == 0 {
			delete(n.children, key)
		}
	}
}

// fits reports whether the token and all its ancestors have room.
func (n *node) fits(amount int64) bool { return n.fullFor(amount) == nil }

// fullFor returns the lowest node without room, nil if all have room.
func (n *node) fullFor(amount int64) *node {
	for ; n != nil; n = n.parent {
		if n.used+amount > n.limit {
			return n
		}
	}
	return nil
}

// sort moves a node to its place among its siblings, after a change.
func (n *node) sort() {
	if n.parent == nil {
		return
	}
	n.parent.next.put(n, n.waiting > 0 && !n.blocked && (n.first != nil || len(n.next.nodes) > 0))
	n.parent.crowd.put(n, n.waiting > 0)
}

// block skips a node until it has changed.
func (n *node) block() {
	n.blocked = true
	for ; n != nil; n = n.parent {
		n.sort()
	}
}

func (n *node) unblock() {
	n.blocked = false
	n.sort()
}

// newest returns the last waiter of the greatest crowd.
func (n *node) newest() *waiter {
	for n.last == nil {
		n = n.crowd.first()
	}
	return n.last
}

// push puts w at the end of a token's queue.
func (n *node) push(w *waiter) {
	w.before = n.last
	if n.last != nil {
		n.last.after = w
	} else {
		n.first = w
	}
	n.last = w
}

// drop takes w out of a token's queue.
func (n *node) drop(w *waiter) {
	if w.before != nil {
		w.before.after = w.after
	} else {
		n.first = w.after
	}
	if w.after != nil {
		w.after.before = w.before
	} else {
		n.last = w.before
	}
	w.before, w.after = nil, nil
}

// sooner is the order in which siblings are served.
func sooner(a, b *node) bool {
	if a.used != b.used {
		return a.used < b.used
	}
	return a.served < b.served
}

// larger is the order in which siblings lose waiters.
func larger(a, b *node) bool {
	if a.waiting != b.waiting {
		return a.waiting > b.waiting
	}
	return a.arrival > b.arrival
}

// ranking is a heap of siblings that know their places.
type ranking struct {
	nodes  []*node
	before func(a, b *node) bool
	at     func(*node) *int
}

// first returns the node that comes first, nil when there is none.
func (r *ranking) first() *node {
	if len(r.nodes) == 0 {
		return nil
	}
	return r.nodes[0]
}

// put puts a node into its place, or takes it out.
func (r *ranking) put(n *node, in bool) {
	switch place := *r.at(n); {
	case in && place == 0:
		heap.Push(r, n)
	case in:
		heap.Fix(r, place-1)
	case place != 0:
		heap.Remove(r, place-1)
	}
}

// Len implements heap.Interface.
func (r *ranking) Len() int { return len(r.nodes) }

// Less implements heap.Interface.
func (r *ranking) Less(i, j int) bool { return r.before(r.nodes[i], r.nodes[j]) }

// Swap implements heap.Interface.
func (r *ranking) Swap(i, j int) {
	r.nodes[i], r.nodes[j] = r.nodes[j], r.nodes[i]
	*r.at(r.nodes[i]), *r.at(r.nodes[j]) = i+1, j+1
}

// Push implements heap.Interface.
func (r *ranking) Push(n any) {
	c := n.(*node) // only this package pushes
	r.nodes = append(r.nodes, c)
	*r.at(c) = len(r.nodes)
}

// Pop implements heap.Interface.
func (r *ranking) Pop() any {
	last := len(r.nodes) - 1
	c := r.nodes[last]
	r.nodes[last] = nil
	r.nodes = r.nodes[:last]
	*r.at(c) = 0
	return c
}
