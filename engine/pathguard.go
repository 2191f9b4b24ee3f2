package engine

import (
	"context"
	"errors"
	"fmt"

	"packhorse/engine/pathpolicy"
	"packhorse/engine/revision"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/refs"
)

// pathGuard checks for one change whether the paths that it changes may change. It belongs to one
// goroutine.
//
// A ref that is there is compared with its old value. A ref that is created is compared with the
// commits on which its new ones build, new being those that no ref reached: a path changes if the
// tip has something else there than each of them. A ref to a commit that other refs reach changes
// no path.
type pathGuard struct {
	repo   *Repository
	policy pathpolicy.Policy
	// known are the checks so far: the repository may have changed between two checks of one move.
	known map[knownMove]error
}

// basesMax bounds the commits with which a new ref is compared.
const basesMax = 1000

// newPathGuard returns nil for a policy that protects nothing.
func (r *Repository) newPathGuard(policy pathpolicy.Policy) *pathGuard {
	if !policy.Protects() {
		return nil
	}
	return &pathGuard{repo: r, policy: policy, known: make(map[knownMove]error)}
}

// bind makes a change ask the guard. objects returns the objects of the change; the caller of bind
// closes them.
func (g *pathGuard) bind(change *refs.Change, objects func() *odb.View) {
	change.Check = func(ctx context.Context, move refs.Move) error { return g.check(ctx, objects(), move) }
}

// bindStored is bind for a change that points refs to stored objects.
func (g *pathGuard) bindStored(change *refs.Change) {
	change.Check = func(ctx context.Context, move refs.Move) error {
		view, err := g.repo.Objects(ctx)
		if err != nil {
			return err
		}
		defer view.Close()
		return g.check(ctx, view, move)
	}
}

// check refuses a move that changes a protected path. Errors: a [refs.DeniedError].
func (g *pathGuard) check(ctx context.Context, view *odb.View, move refs.Move) error {
	view = view.Linked()
	key := knownMove{Move: move}
	if !move.Before.IsZero() {
		return g.compare(ctx, view, key,
			func(context.Context, object.ID) ([]object.ID, error) { return []object.ID{move.Before}, nil })
	}
	names, err := g.repo.visibleNames(ctx)
	if err != nil {
		return err
	}
	defer names.Close()
	key.names = names.Version()
	return g.compare(ctx, view, key, func(ctx context.Context, tip object.ID) ([]object.ID, error) {
		return g.bases(ctx, view, names, move.Name, tip)
	})
}

// findBases returns the commits with whose trees that of a tip is compared.
type findBases func(ctx context.Context, tip object.ID) ([]object.ID, error)

// compare compares the tree of a move's target with those of what bases finds for it, once for each
// move, and in a turn.
func (g *pathGuard) compare(
	ctx context.Context, view *odb.View, key knownMove, bases findBases,
) error {
	if err, ok := g.known[key]; ok {
		return err
	}
	err := fair.Do(ctx, func(ctx context.Context) error { return g.compareTrees(ctx, view, key, bases) })
	if err == nil || errors.Is(err, refs.ErrDenied) {
		g.known[key] = err
	}
	return err
}

func (g *pathGuard) compareTrees(
	ctx context.Context, view *odb.View, key knownMove, bases findBases,
) error {
	tip, after, err := rootOf(ctx, view, key.After)
	if err != nil {
		return err
	}
	ids, err := bases(ctx, tip)
	if err != nil {
		return err
	}
	trees := make([]object.ID, len(ids))
	for i, id := range ids {
		if _, trees[i], err = rootOf(ctx, view, id); err != nil {
			return err
		}
	}
	return g.policy.Check(ctx, view, key.Name, trees, after)
}

// rootOf follows tags, and returns the commit, tree or blob that they lead to, and its root tree,
// that without entries for a blob.
func rootOf(ctx context.Context, view *odb.View, id object.ID) (tip, root object.ID, err error) {
	tip, t, err := revision.Follow(ctx, view, id)
	if err != nil {
		return tip, object.ZeroID, err
	}
	if t == object.TypeTree {
		return tip, tip, nil
	}
	if t == object.TypeCommit {
		root, err = treeOf(ctx, view, tip)
	}
	return tip, root, err
}

// bases returns the commits on which the commits build that a new ref adds. It is tip itself when
// there are none to add, and nothing when they begin a history of their own.
func (g *pathGuard) bases(
	ctx context.Context, view *odb.View, names *refs.Snapshot, name string, tip object.ID,
) ([]object.ID, error) {
	if commits, err := onlyCommits(ctx, view, tip); err != nil || len(commits) == 0 {
		return nil, err
	}
	var hide []object.ID
	seen := make(map[object.ID]bool)
	for ref, err := range names.All(ctx, "") {
		if err != nil {
			return nil, fmt.Errorf("read refs: %w", err)
		}
		id := ref.Target()
		if id == tip {
			return []object.ID{tip}, nil
		}
		if seen[id] {
			continue
		}
		seen[id] = true
		commits, err := onlyCommits(ctx, view, id)
		if err != nil {
			return nil, fmt.Errorf("read tip of %s: %w", ref.Name, err)
		}
		hide = append(hide, commits...)
	}
	if len(hide) == 0 {
		return nil, nil
	}
	return g.boundary(ctx, view, name, revwalk.WalkOptions{
		Tips: []object.ID{tip}, Hide: hide, Order: revwalk.OrderDateTopo,
	})
}

// boundary returns the parents of the commits of a walk that the walk does not give, or the tip
// when it gives none. Errors: a [refs.DeniedError] for more than basesMax.
func (g *pathGuard) boundary(
	ctx context.Context, view *odb.View, name string, walk revwalk.WalkOptions,
) ([]object.ID, error) {
	open := make(map[object.ID]struct{}) // children come first, so what stays is hidden
	var order []object.ID
	given := false
	for c, err := range revwalk.Walk(ctx, view, walk) {
		if err != nil {
			return nil, fmt.Errorf("walk new history of %s: %w", name, err)
		}
		given = true
		delete(open, c.ID)
		for _, parent := range c.Parents {
			if _, ok := open[parent]; !ok {
				open[parent] = struct{}{}
				order = append(order, parent)
			}
		}
	}
	if !given {
		return walk.Tips, nil
	}
	if len(open) > basesMax {
		return nil, &refs.DeniedError{Name: name, Op: pathpolicy.NoWrite, Detail: fmt.Sprintf(
			"it builds on more than %d commits: create the ref at one of them first", basesMax)}
	}
	bases := make([]object.ID, 0, len(open))
	for _, id := range order {
		if _, ok := open[id]; ok {
			bases = append(bases, id)
			delete(open, id)
		}
	}
	return bases, nil
}
