package packgen

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb/progress"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// reaching finds the objects of a pack: those that the wants reach and that the client, by its
// haves, does not have.
//
// Commits come from a walk of history. Trees and blobs come from a walk over paths. It opens all
// versions of a folder in the commits to send together, each once, beside those of the edge, the
// client's commits that the sent ones build on. It opens nothing at a path that only the edge has,
// so the cost follows the change. It leaves out the objects that the edge holds in an opened
// folder, as git pack-objects does with pack.useSparse, its default.
type reaching struct {
	inv      *inventory
	filter   *Filter
	history  *revwalk.Graph
	progress *progress.Meter
	found    int64
	depthMax int

	send   objectSet // to be sent
	seen   objectSet // visited objects
	hidden objectSet // the client's objects that the walk met or bitmaps cover
	edge   objectSet // trees of the edge

	// paths are for the delta search, and kept only if keepPaths is set.
	paths     []pathVersions
	keepPaths bool

	// known, if set, holds all objects of the client, so that the walk needs not ask for those of the
	// edge one by one. It may find some of them again.
	known *knownObjects

	// within, if set, keeps the walk over trees from leaving a set.
	within *objectSet
}

// pathVersions holds the versions of one path in a pack, newest first, and those that the client is
// known to have.
type pathVersions struct {
	kind        object.Type
	nameHash    uint32 // brings similar names together
	sent, known []handle
}

func newReaching(inv *inventory, request *Request, report *progress.Meter) *reaching {
	r := &reaching{
		inv:      inv,
		filter:   &request.Filter,
		history:  revwalk.NewGraph(inv.view),
		progress: report,
		depthMax: inv.view.Limits().TreeDepth,
		send:     inv.newSet(),
		seen:     inv.newSet(),
		hidden:   inv.newSet(),
		edge:     inv.newSet(),
	}
	r.history.CutAt(request.ClientShallow)
	r.history.CutAt(request.Shallow)
	return r
}

// sides are the wants or the haves, sorted by the type of the object that they lead to.
type sides struct {
	commits []object.ID
	trees   []handle
	blobs   []handle
	tags    []handle // on the way to the others
}

// sort peels ids.
func (r *reaching) sort(ctx context.Context, ids []object.ID) (sides, error) {
	var s sides
	for _, id := range ids {
		target, t, tags, err := revwalk.Peel(ctx, r.inv.view, id)
		if err != nil {
			return s, err
		}
		for _, tag := range tags {
			h, err := r.inv.locate(ctx, tag)
			if err != nil {
				return s, err
			}
			s.tags = append(s.tags, h)
		}
		if t == object.TypeCommit {
			s.commits = append(s.commits, target)
			continue
		}
		h, err := r.inv.locate(ctx, target)
		if err != nil {
			return s, err
		}
		if t == object.TypeTree {
			s.trees = append(s.trees, h)
		} else {
			s.blobs = append(s.blobs, h)
		}
	}
	return s, nil
}

// find finds the objects by pack reuse if it can, otherwise by run.
func (r *reaching) find(ctx context.Context, request *Request) error {
	r.keepPaths = len(request.Haves) > 0
	if r.fitsBitmaps(request) {
		if err := r.inv.useBitmaps(ctx); err != nil {
			return err
		}
	}
	if found, err := r.findWhole(ctx, request); found || err != nil {
		return err
	}
	return r.run(ctx, request)
}

// run finds the objects by a walk or, if there are bitmaps and much is sent, by fill-in traversal.
func (r *reaching) run(ctx context.Context, request *Request) error {
	wants, err := r.sort(ctx, request.Wants)
	if err != nil {
		return fmt.Errorf("wants: %w", err)
	}
	haves, err := r.sort(ctx, request.Haves)
	if err != nil {
		return fmt.Errorf("haves: %w", err)
	}
	if err := r.hideAll(ctx, &haves); err != nil {
		return err
	}
	if r.inv.bitmaps != nil && len(request.Haves) == 0 {
		return r.takeCovered(ctx, request, &wants, &haves)
	}
	if err := r.hideNear(ctx, haves.commits); err != nil {
		return err
	}
	roots, err := r.walkCommits(ctx, request, &wants, &haves)
	if errors.Is(err, errManyCommits) {
		return r.takeCovered(ctx, request, &wants, &haves)
	}
	if err != nil {
		return err
	}
	r.ask(&wants)
	if r.filter.keepsType(object.TypeTree) || r.filter.keepsType(object.TypeBlob) {
		w := newTreeWalk(r)
		for _, blob := range wants.blobs {
			r.seen.add(blob)
		}
		for _, tree := range wants.trees {
			if r.seen.add(tree) { // else it was met as the tree of a commit
				w.add(treeGroup{depth: -1, trees: []handle{tree}})
			}
		}
		if r.keepPaths {
			r.addPath(object.TypeTree, "", roots.trees, roots.hidden)
		}
		w.add(roots)
		if err := w.run(ctx); err != nil {
			return err
		}
	}
	r.send.subtract(&r.hidden)
	return nil
}

// hideAll marks the trees and blobs among the haves, which are rare, with all that they hold.
func (r *reaching) hideAll(ctx context.Context, haves *sides) error {
	for _, blob := range haves.blobs {
		r.hidden.add(blob)
	}
	for _, tag := range haves.tags {
		r.hidden.add(tag)
	}
	stack := haves.trees
	for len(stack) > 0 {
		tree := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !r.hidden.add(tree) {
			continue
		}
		err := r.eachEntry(ctx, tree, func(mode object.Mode, id object.ID) error {
			h, err := r.inv.locate(ctx, id)
			if err != nil {
				return err
			}
			if mode.IsTree() {
				stack = append(stack, h)
			} else {
				r.hidden.add(h)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachEntry calls visit with the entries of a tree, except links to submodules.
func (r *reaching) eachEntry(ctx context.Context, tree handle, visit func(mode object.Mode, id object.ID) error) error {
	_, data, err := r.inv.read(ctx, tree)
	if err != nil {
		return err
	}
	it := object.IterTree(data)
	for it.Next() {
		if it.Mode.Type() == object.TypeCommit {
			continue
		}
		if err := visit(it.Mode, it.ID); err != nil {
			return err
		}
	}
	return it.Err()
}

// ask adds the objects that were asked for by ID to those to send, past the filter. Commits follow
// later, when it is known which of them the client has.
func (r *reaching) ask(wants *sides) {
	for _, handles := range [][]handle{wants.tags, wants.trees, wants.blobs} {
		for _, h := range handles {
			r.put(h)
		}
	}
}

// put adds an object to those to send.
func (r *reaching) put(h handle) {
	if r.send.add(h) {
		r.found++
		r.progress.Step(phaseEnumerating, r.found, 0)
	}
}

// walkCommits adds the commits and returns their root trees, with those of the edge.
func (r *reaching) walkCommits(ctx context.Context, request *Request, wants, haves *sides) (treeGroup, error) {
	var roots treeGroup
	w := revwalk.NewWalker(r.inv.view, revwalk.WalkOptions{})
	w.Graph = r.history
	tips, err := r.withUnshallowed(ctx, slices.Clip(wants.commits), request.Unshallow)
	if err != nil {
		return roots, err
	}
	hide := slices.Concat(haves.commits, request.Unshallow)
	if err := w.Start(ctx, tips, hide); err != nil {
		return roots, err
	}
	list, err := w.List(ctx)
	if err != nil {
		return roots, err
	}
	if r.inv.bitmaps != nil && len(list) > r.inv.view.Store().Options().CoverCount {
		return roots, errManyCommits
	}
	for _, id := range tips { // as in git, parents of unshallowed commits count as asked for by ID
		r.history.Set(r.history.Number(id), revwalk.MarkAsked)
	}
	for _, n := range list {
		if err := r.addCommit(ctx, n, &roots); err != nil {
			return roots, err
		}
	}
	if len(request.ClientShallow)+len(request.Shallow) > 0 {
		// As pack-objects --shallow does: in a cut history the edge covers only a part of the client's
		// objects.
		for _, id := range hide {
			if err := r.addEdge(ctx, r.history.Number(id), &roots); err != nil {
				return roots, err
			}
		}
	}
	return roots, nil
}

// withUnshallowed adds the stored parents of unshallowed commits.
func (r *reaching) withUnshallowed(ctx context.Context, tips, unshallow []object.ID) ([]object.ID, error) {
	for _, id := range unshallow {
		row, err := r.inv.view.Graph(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("graph row of unshallowed commit %s: %w", id, err)
		}
		tips = append(tips, row.Parents...)
	}
	return tips, nil
}

func (r *reaching) addCommit(ctx context.Context, n int32, roots *treeGroup) error {
	if r.filter.keepsType(object.TypeCommit) || r.history.Has(n, revwalk.MarkAsked) {
		h, err := r.inv.linked(ctx, r.history.ID(n))
		if err != nil {
			return err
		}
		r.put(h)
	}
	if !r.filter.keepsType(object.TypeTree) && !r.filter.keepsType(object.TypeBlob) {
		return nil
	}
	tree, err := r.inv.linked(ctx, r.history.Tree(n))
	if err != nil {
		return fmt.Errorf("tree of commit %s: %w", r.history.ID(n), err)
	}
	if r.seen.add(tree) {
		roots.trees = append(roots.trees, tree)
		if r.filter.keepsType(object.TypeTree) {
			r.put(tree)
		}
	}
	for _, p := range r.history.ParentsOf(n) {
		if r.history.Has(p, revwalk.MarkHidden) {
			if err := r.addEdge(ctx, p, roots); err != nil {
				return err
			}
		}
	}
	return nil
}

// addEdge records that the client has commit n, which is a neighbour of a sent commit.
func (r *reaching) addEdge(ctx context.Context, n int32, roots *treeGroup) error {
	if r.history.Has(n, revwalk.MarkEdge) {
		return nil
	}
	r.history.Set(n, revwalk.MarkEdge)
	tree, err := r.inv.linked(ctx, r.history.Tree(n))
	if err != nil {
		return fmt.Errorf("tree of commit %s: %w", r.history.ID(n), err)
	}
	r.hidden.add(tree)
	if r.edge.add(tree) {
		roots.hidden = append(roots.hidden, tree)
	}
	return nil
}
