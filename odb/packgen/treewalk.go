package packgen

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// treeGroup is a path with the versions of the folder there to open: the sent ones, newest first,
// and those of the edge.
type treeGroup struct {
	depth         int // 0 for the trees of commits; -1 for trees asked for by ID, whose entries have depth 0
	trees, hidden []handle
}

// tree returns the i-th tree of the group, those of the edge first.
func (g *treeGroup) tree(i int) handle {
	if i < len(g.hidden) {
		return g.hidden[i]
	}
	return g.trees[i-len(g.hidden)]
}

func (g *treeGroup) len() int { return len(g.hidden) + len(g.trees) }

// treeWalk opens the trees of a [reaching] path by path, the shallowest first, so that the first
// visit of an object is the one of least depth. One goroutine decides, in order, so equal requests
// get equal packs; two others read ahead of it.
type treeWalk struct {
	reaching *reaching
	groups   []treeGroup // to be processed, from next on
	next     int
	children map[string]*treeChild
	ahead    readAhead
}

// treeChild holds the objects with one name in the folder of a group.
type treeChild struct {
	trees, hiddenTrees []handle
	blobs, hiddenBlobs []handle
}

func newTreeWalk(r *reaching) *treeWalk {
	return &treeWalk{reaching: r, children: make(map[string]*treeChild)}
}

func (w *treeWalk) add(g treeGroup) {
	if len(g.trees) > 0 {
		w.groups = append(w.groups, g)
	}
}

func (w *treeWalk) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	w.ahead.start(ctx, w.reaching.inv, !w.reaching.filter.keepsType(object.TypeBlob))
	defer w.ahead.stop()
	defer cancel()
	for w.next < len(w.groups) {
		g := &w.groups[w.next]
		if g.depth >= w.reaching.depthMax {
			return fmt.Errorf("trees nested deeper than %d: %w", w.reaching.depthMax, odb.ErrTooLarge)
		}
		if err := w.open(ctx, g); err != nil {
			return err
		}
		w.groups[w.next] = treeGroup{}
		w.next++
		if w.next > 1024 && 2*w.next > len(w.groups) {
			w.groups = slices.Delete(w.groups, 0, w.next)
			w.ahead.group -= w.next
			w.next = 0
		}
	}
	return nil
}

// open processes one group and adds the groups of its folders.
func (w *treeWalk) open(ctx context.Context, g *treeGroup) error {
	depth := g.depth
	var previous []byte
	for _, tree := range g.hidden {
		data, err := w.ahead.take(ctx, w.groups)
		if err != nil {
			return err
		}
		if w.reaching.known == nil {
			if err := w.hide(ctx, data, previous); err != nil {
				return fmt.Errorf("tree %v: %w", tree, err)
			}
		}
		previous = data
	}
	for _, tree := range g.trees {
		if err := w.reaching.inv.pace.Rest(ctx); err != nil {
			return err
		}
		data, err := w.ahead.take(ctx, w.groups)
		if err != nil {
			return err
		}
		if g.depth >= 0 && w.reaching.hidden.has(tree) {
			continue // hidden at another path of the edge
		}
		if err := w.show(ctx, data, previous, depth+1); err != nil {
			return fmt.Errorf("tree %v: %w", tree, err)
		}
		previous = data
	}
	w.descend(depth + 1)
	return nil
}

// descend turns the folders among the children into groups, in the order of their names.
func (w *treeWalk) descend(depth int) {
	r := w.reaching
	for _, name := range slices.Sorted(maps.Keys(w.children)) {
		c := w.children[name]
		if r.keepPaths {
			r.addPath(object.TypeTree, name, c.trees, c.hiddenTrees)
			r.addPath(object.TypeBlob, name, c.blobs, c.hiddenBlobs)
		}
		w.add(treeGroup{depth: depth, trees: c.trees, hidden: c.hiddenTrees})
	}
	clear(w.children)
}

func (r *reaching) addPath(kind object.Type, name string, sent, known []handle) {
	if len(sent) > 0 {
		r.paths = append(r.paths, pathVersions{kind: kind, nameHash: nameHash(name), sent: sent, known: known})
	}
}

// nameHash is git's pack_name_hash: the last characters of a name count most, so that files of one
// kind come together.
func nameHash(name string) uint32 {
	hash := uint32(0)
	for i := range len(name) {
		hash = hash>>2 + uint32(name[i])<<24
	}
	return hash
}

func (w *treeWalk) child(name []byte) *treeChild {
	c, ok := w.children[string(name)]
	if !ok {
		c = &treeChild{}
		w.children[string(name)] = c
	}
	return c
}

// hide marks the entries of a tree of the edge.
func (w *treeWalk) hide(ctx context.Context, data, previous []byte) error {
	r := w.reaching
	it := revwalk.NewTreeDiff(data, previous)
	for it.Next() {
		h, err := r.inv.linked(ctx, it.ID)
		if err != nil {
			return err
		}
		r.hidden.add(h)
		switch c := w.child(it.Name); {
		case it.Mode.IsTree():
			c.hiddenTrees = append(c.hiddenTrees, h)
		case r.keepPaths:
			c.hiddenBlobs = append(c.hiddenBlobs, h)
		}
	}
	return it.Err()
}

// show adds the new entries of a sent tree. They lie at depth.
func (w *treeWalk) show(ctx context.Context, data, previous []byte, depth int) error {
	r := w.reaching
	if !r.filter.keepsDepth(depth) {
		return nil
	}
	it := revwalk.NewTreeDiff(data, previous)
	it.NoFiles = !r.filter.keepsType(object.TypeBlob)
	for it.Next() {
		isTree := it.Mode.IsTree()
		if !isTree && it.NoFiles {
			continue
		}
		h, err := r.inv.linked(ctx, it.ID)
		if err != nil {
			return err
		}
		if r.hidden.has(h) || r.known.has(h, it.ID) || (r.within != nil && !r.within.has(h)) || !r.seen.add(h) {
			continue
		}
		if isTree {
			c := w.child(it.Name)
			if err := w.compare(ctx, c, &it); err != nil {
				return err
			}
			c.trees = append(c.trees, h)
			if r.filter.keepsType(object.TypeTree) {
				r.put(h)
			}
			continue
		}
		if err := w.showBlob(ctx, h, it.Name); err != nil {
			return err
		}
	}
	return it.Err()
}

// compare adds the tree of the edge that the first new version of a folder replaces to c. Without
// known objects hide has done so.
func (w *treeWalk) compare(ctx context.Context, c *treeChild, it *revwalk.TreeDiff) error {
	if w.reaching.known == nil || len(c.trees) > 0 {
		return nil
	}
	former, ok := it.Former()
	if !ok {
		return nil
	}
	h, err := w.reaching.inv.linked(ctx, former)
	if err == nil {
		c.hiddenTrees = append(c.hiddenTrees, h)
	}
	return err
}

func (w *treeWalk) showBlob(ctx context.Context, h handle, name []byte) error {
	r := w.reaching
	if r.filter.blobLimited {
		info, err := r.inv.stat(ctx, h)
		if err != nil {
			return err
		}
		if !r.filter.keepsSize(info.Size) {
			return nil
		}
	}
	r.put(h)
	if r.keepPaths {
		c := w.child(name)
		c.blobs = append(c.blobs, h)
	}
	return nil
}
