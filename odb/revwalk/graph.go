// Package revwalk walks the commits of a view: in the orders of git rev-list, limited to a path, to
// merge bases, to the boundary of a shallow clone, and to the last change of every file.
//
// Start at [Walk]; [Graph] is the part of history that a walk has met. The map, by file:
//
//	graph, queue           commits by number, read once; the queue by date
//	walk                   git rev-list
//	relations, painting,   merge bases, ancestors and commits ahead; of one tip that grows
//	ancestry
//	allreach               whether a client has what it needs
//	deepen                 shallow boundaries
//	listing                walks that rest between two pages
//	pathwalk, pathreader,  walks limited to a path, with changed-path filters; trees side by side
//	treediff
//	trace, tracer,         the last change of every file in one walk, or of what is in one folder
//	traceset, doubt
//
// A walk belongs to one goroutine. Memory follows what was visited.
package revwalk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// IDTable numbers object IDs in the order of their first lookup: 0, 1, 2 and so on. It takes 28 to
// 36 bytes an ID.
type IDTable struct {
	ids   []object.ID
	slots []uint32 // number + 1, open addressing; the length is a power of two
}

// Number returns the number of id, and whether id was added by this call.
func (t *IDTable) Number(id object.ID) (n int32, fresh bool) {
	if 2*len(t.ids) >= len(t.slots) {
		t.grow()
	}
	slot := t.slot(&id)
	if found := t.slots[slot]; found != 0 {
		return int32(found - 1), false
	}
	t.ids = append(t.ids, id)
	t.slots[slot] = uint32(len(t.ids))
	return int32(len(t.ids) - 1), true
}

// Find returns the number of id, -1 when it has none.
func (t *IDTable) Find(id object.ID) int32 {
	if len(t.slots) == 0 {
		return -1
	}
	return int32(t.slots[t.slot(&id)]) - 1
}

// ID returns the ID of number n.
func (t *IDTable) ID(n uint32) object.ID { return t.ids[n] }

// slot returns the slot that holds id, or the one where it belongs.
func (t *IDTable) slot(id *object.ID) uint64 {
	mask := uint64(len(t.slots) - 1)
	slot := binary.LittleEndian.Uint64(id[:]) & mask
	for t.slots[slot] != 0 && t.ids[t.slots[slot]-1] != *id {
		slot = (slot + 1) & mask
	}
	return slot
}

func (t *IDTable) grow() {
	const slotCountMin = 64
	t.slots = make([]uint32, max(slotCountMin, 2*len(t.slots)))
	for n := range t.ids {
		t.slots[t.slot(&t.ids[n])] = uint32(n) + 1
	}
}

// marks is the state of a commit in a walk.
type marks uint32

// The marks. MarkSeen, MarkHidden, MarkEdge and MarkAsked are for the callers of [Graph.Has].
const (
	markLoaded marks = 1 << iota // the graph row has been read
	MarkSeen                     // has been in the queue
	markQueued                   // is in the queue now
	markAdded                    // its parents have been visited
	MarkHidden                   // reachable from a hidden commit; git's UNINTERESTING
	markOne                      // reachable from the first side of a comparison
	markTwo                      // reachable from the second side
	markStale                    // reachable from a merge base
	MarkEdge                     // a hidden parent of a commit that is sent
	MarkAsked                    // asked for by its ID, or by a tag that leads to it
	markSame                     // equal to a parent at the path of the walk; git's TREESAME
	markTrunk                    // reachable from the tip of an [Ancestry]
)

// commitNode is one commit of a [Graph]. Its number is its index; the table holds its ID.
type commitNode struct {
	tree        object.ID
	seconds     int64
	generation  uint32
	marks       marks
	parentStart int32 // in history.parents
	parentCount int32
}

// Graph is the part of a view's commit graph that one walk has visited. It numbers commits when it
// meets them and reads them on demand, so memory follows the visited part: about 100 bytes a
// commit. It belongs to one goroutine.
type Graph struct {
	view    *odb.View              // reads tips
	linked  *odb.View              // reads the commits that tips lead to
	cut     map[object.ID]struct{} // commits that count as having no parents: a shallow boundary
	table   IDTable
	nodes   []commitNode
	parents []int32
}

// NewGraph returns a graph over v that holds no commit yet.
func NewGraph(v *odb.View) *Graph { return &Graph{view: v, linked: v.Linked()} }

// graphs holds the memory of graphs of short walks, each of [Graph.release].
var graphs sync.Pool

// pooledCommits is the number of commits up to which a graph's memory is kept for the next one.
const pooledCommits = 4096

// newShortGraph is NewGraph for a walk that is probably short, and releases the graph at its end.
func newShortGraph(v *odb.View) *Graph {
	h, _ := graphs.Get().(*Graph)
	if h == nil {
		return NewGraph(v)
	}
	h.view, h.linked = v, v.Linked()
	return h
}

// release gives up a graph that nothing refers to any more.
func (h *Graph) release() {
	if len(h.nodes) > pooledCommits {
		return
	}
	clear(h.table.slots)
	table := IDTable{ids: h.table.ids[:0], slots: h.table.slots}
	*h = Graph{table: table, nodes: h.nodes[:0], parents: h.parents[:0]}
	graphs.Put(h)
}

// CutAt makes the commits in ids count as having no parents. It must be called before they are
// loaded.
func (h *Graph) CutAt(ids []object.ID) {
	if h.cut == nil && len(ids) > 0 {
		h.cut = make(map[object.ID]struct{}, len(ids))
	}
	for _, id := range ids {
		h.cut[id] = struct{}{}
	}
}

// Number returns the number of a commit, loaded or not.
func (h *Graph) Number(id object.ID) int32 {
	n, fresh := h.table.Number(id)
	if fresh {
		h.nodes = append(h.nodes, commitNode{})
	}
	return n
}

// ID returns the ID of commit n.
func (h *Graph) ID(n int32) object.ID { return h.table.ids[n] }

// Load reads the graph row of commit n, once.
func (h *Graph) Load(ctx context.Context, n int32) error {
	if h.nodes[n].marks&markLoaded != 0 {
		return nil
	}
	if err := fair.Pause(ctx); err != nil {
		return err
	}
	row, err := h.linked.Graph(ctx, h.ID(n))
	if err != nil {
		return fmt.Errorf("graph row of commit %s: %w", h.ID(n), err)
	}
	h.fill(n, &row)
	return nil
}

// fill sets the row of commit n.
func (h *Graph) fill(n int32, row *odb.GraphRow) {
	start := len(h.parents)
	if _, cut := h.cut[h.ID(n)]; !cut {
		for _, parent := range row.Parents {
			h.parents = append(h.parents, h.Number(parent))
		}
	}
	node := &h.nodes[n] // numbering the parents may have moved the nodes
	node.tree, node.seconds, node.generation = row.Tree, row.Seconds, row.Generation
	node.parentStart, node.parentCount = int32(start), int32(len(h.parents)-start)
	node.marks |= markLoaded
}

// Rank makes the generation number of n known. It computes those of rows without one, which are
// rare, from their roots up.
func (h *Graph) Rank(ctx context.Context, n int32) error {
	if h.nodes[n].generation != 0 {
		return nil
	}
	stack := []int32{n}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		if err := h.Load(ctx, top); err != nil {
			return err
		}
		if h.nodes[top].generation != 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		highest, depth := uint32(0), len(stack)
		for _, p := range h.ParentsOf(top) {
			if err := h.Load(ctx, p); err != nil {
				return err
			}
			if g := h.nodes[p].generation; g == 0 {
				stack = append(stack, p)
			} else {
				highest = max(highest, g)
			}
		}
		if len(stack) == depth {
			h.nodes[top].generation = max(highest, highest+1) // saturates
		}
	}
	return nil
}

// ranksAtMost reports whether the generation number of n, which is loaded, is known and at most
// limit. If so, n reaches no commit above limit.
func (h *Graph) ranksAtMost(n int32, limit uint32) bool {
	g := h.nodes[n].generation
	return g != 0 && g <= limit
}

// ParentsOf returns the parents of n, none before n is loaded. The slice is shared and read-only.
func (h *Graph) ParentsOf(n int32) []int32 {
	node := &h.nodes[n]
	return h.parents[node.parentStart : node.parentStart+node.parentCount]
}

// Has reports whether n has all of the given marks.
func (h *Graph) Has(n int32, all marks) bool { return h.nodes[n].marks&all == all }

// Set adds marks to n.
func (h *Graph) Set(n int32, m marks) { h.nodes[n].marks |= m }

// Find returns the number of a commit that the graph has met, -1 for another one.
func (h *Graph) Find(id object.ID) int32 { return h.table.Find(id) }

// Tree returns the tree of n, which is loaded.
func (h *Graph) Tree(n int32) object.ID { return h.nodes[n].tree }

// Generation returns the generation number of n, which is loaded; 0 if it is unknown, see
// [Graph.Rank].
func (h *Graph) Generation(n int32) uint32 { return h.nodes[n].generation }

// Seconds returns the committer date of n, which is loaded, in seconds since 1970.
func (h *Graph) Seconds(n int32) int64 { return h.nodes[n].seconds }

// ParentCount returns the number of parents of n, which is loaded.
func (h *Graph) ParentCount(n int32) int32 { return h.nodes[n].parentCount }

// commit returns n in the form that the caller of a walk gets.
func (h *Graph) commit(n int32) Commit {
	node := &h.nodes[n]
	c := Commit{ID: h.ID(n), GraphRow: odb.GraphRow{Tree: node.tree, Seconds: node.seconds, Generation: node.generation}}
	if parents := h.ParentsOf(n); len(parents) > 0 {
		c.Parents = make([]object.ID, len(parents))
		for i, parent := range parents {
			c.Parents[i] = h.ID(parent)
		}
	}
	return c
}

// Peel returns the object that id leads to through any number of tags, its type, and the tags on
// the way. Errors: [odb.ErrNotFound].
func Peel(
	ctx context.Context, v *odb.View, id object.ID,
) (target object.ID, t object.Type, tags []object.ID, err error) {
	for {
		info, err := v.Stat(ctx, id)
		if err != nil {
			return object.ZeroID, 0, nil, err
		}
		if info.Type != object.TypeTag {
			return id, info.Type, tags, nil
		}
		_, data, err := v.Read(ctx, id)
		if err != nil {
			return object.ZeroID, 0, nil, err
		}
		tags = append(tags, id)
		if id, _, err = object.TagLink(data); err != nil {
			return object.ZeroID, 0, nil, fmt.Errorf("read tag %s: %w", tags[len(tags)-1], err)
		}
	}
}

// ErrNotCommit says that an ID given to a walk leads to a tree or a blob.
var ErrNotCommit = errors.New("odb: not a commit")

// Tip returns the number of the commit that id leads to, loaded. Errors: [odb.ErrNotFound],
// ErrNotCommit.
func (h *Graph) Tip(ctx context.Context, id object.ID) (int32, error) {
	if n := h.table.Find(id); n >= 0 && h.Has(n, markLoaded) {
		return n, nil
	}
	if err := fair.Pause(ctx); err != nil {
		return 0, err
	}
	if row, ok, err := h.view.FindGraph(ctx, id); err == nil && ok { // else Peel tells more
		n := h.Number(id)
		h.fill(n, &row)
		return n, nil
	}
	target, t, _, err := Peel(ctx, h.view, id)
	if err != nil {
		return 0, err
	}
	if t != object.TypeCommit {
		return 0, fmt.Errorf("%s is a %s: %w", target, t, ErrNotCommit)
	}
	n := h.Number(target)
	return n, h.Load(ctx, n)
}

// CommitsOf loads the commits that ids lead to, and returns them in order. It skips IDs that lead
// to a tree or a blob.
func (h *Graph) CommitsOf(ctx context.Context, ids []object.ID) ([]object.ID, error) {
	commits := make([]object.ID, 0, len(ids))
	for _, id := range ids {
		n, err := h.Tip(ctx, id)
		if errors.Is(err, ErrNotCommit) {
			continue
		}
		if err != nil {
			return nil, err
		}
		commits = append(commits, h.ID(n))
	}
	return commits, nil
}
