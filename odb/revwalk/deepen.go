package revwalk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"packhorse/odb"
	"packhorse/pack/object"
)

// DepthInfinite is the depth by which a client asks for the whole history (git fetch --unshallow).
const DepthInfinite = math.MaxInt32

// ErrNoCommits says that the limits of a shallow fetch leave no commit; the text is git's.
var ErrNoCommits = errors.New("no commits selected for shallow requests")

// DeepenOptions say how far the history of a shallow fetch extends: either Depth, or Since and Not.
type DeepenOptions struct {
	// Depth is the number of commits on a path from a want, including the want; [DepthInfinite] for
	// all.
	Depth int
	// Relative counts Depth from the client's present boundary, as far as Tips reach it.
	Relative bool
	// Since leaves out commits older than this, in seconds since 1970; 0 leaves out none.
	Since int64
	// Not leaves out the commits that these commits or tags reach.
	Not []object.ID
	// ClientShallow is the boundary of the client, the IDs of its "shallow" lines. Unknown ones are
	// ignored.
	ClientShallow []object.ID
	// Tips are the refs of the repository; only Relative needs them.
	Tips []object.ID
}

// Deepen returns the boundary of a shallow fetch of wants: the "shallow" and "unshallow" lines of
// git upload-pack, in its order. shallow are the commits without whose parents the client will be,
// unshallow those of options.ClientShallow whose parents it will get.
//
// Errors: [ErrNoCommits], [odb.ErrNotFound] for a want.
func Deepen(
	ctx context.Context, v *odb.View, wants []object.ID, options DeepenOptions,
) (shallow, unshallow []object.ID, err error) {
	d := deepening{view: v, history: NewGraph(v)}
	if err := d.addClient(ctx, options.ClientShallow); err != nil {
		return nil, nil, err
	}
	switch {
	case options.Depth == DepthInfinite:
		return nil, d.client, nil
	case options.Depth > 0 && options.Relative:
		var from []object.ID
		if from, err = d.reachable(ctx, options.Tips); err == nil {
			err = d.toDepth(ctx, from, options.Depth+1)
		}
	case options.Depth > 0:
		err = d.toDepth(ctx, wants, options.Depth)
	default:
		err = d.toLimits(ctx, wants, options)
	}
	if err != nil {
		return nil, nil, err
	}
	return d.answer()
}

// deepening is the state of one [Deepen]. The client will have the parents of the commits in
// inside.
type deepening struct {
	view     *odb.View
	history  *Graph
	client   []object.ID
	boundary []int32 // in the order found; one may be in it twice, or inside after all
	inside   map[int32]struct{}
}

// addClient adds the commits that the client names as its boundary.
func (d *deepening) addClient(ctx context.Context, ids []object.ID) error {
	d.inside = make(map[int32]struct{})
	for _, id := range ids {
		info, err := d.view.Stat(ctx, id)
		if errors.Is(err, odb.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Type != object.TypeCommit {
			return fmt.Errorf("invalid shallow object %s: %w", id, ErrNotCommit)
		}
		if !slices.Contains(d.client, id) {
			d.client = append(d.client, id)
		}
	}
	return nil
}

// reachable returns the commits of the client's boundary that tips reach, by the same walk as in
// git.
func (d *deepening) reachable(ctx context.Context, tips []object.ID) ([]object.ID, error) {
	w := NewWalker(d.view, WalkOptions{})
	commits, err := w.Graph.CommitsOf(ctx, tips)
	if err != nil {
		return nil, err
	}
	if err := w.Start(ctx, d.client, commits); err != nil {
		return nil, err
	}
	unreached, err := w.List(ctx)
	if err != nil {
		return nil, err
	}
	from := slices.DeleteFunc(slices.Clone(d.client), func(id object.ID) bool {
		return slices.Contains(unreached, w.Graph.Number(id)) && !slices.Contains(tips, id)
	})
	return from, nil
}

// toDepth finds the commits at the given depth below heads: git's get_shallow_commits, in its
// order. It follows every line of last parents to its end before it takes another head or another
// parent.
func (d *deepening) toDepth(ctx context.Context, heads []object.ID, depth int) error {
	depths := make(map[int32]int, len(heads))
	var stack []int32
	commits, err := d.history.CommitsOf(ctx, heads)
	if err != nil {
		return err
	}
	for _, head := range commits {
		n := d.history.Number(head)
		depths[n] = 0
		if stack, err = d.follow(ctx, n, depth, depths, stack); err != nil {
			return err
		}
	}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		if stack, err = d.follow(ctx, n, depth, depths, stack[:len(stack)-1]); err != nil {
			return err
		}
	}
	slices.Reverse(d.boundary)
	return nil
}

// follow goes from n along last parents until depth is reached or a commit has a smaller depth
// already, and adds the other parents to stack.
func (d *deepening) follow(
	ctx context.Context, n int32, depth int, depths map[int32]int, stack []int32,
) ([]int32, error) {
	for {
		if err := d.history.Load(ctx, n); err != nil {
			return nil, err
		}
		below := depths[n] + 1
		if below >= depth {
			d.boundary = append(d.boundary, n)
			return stack, nil
		}
		d.inside[n] = struct{}{}
		parents := d.history.ParentsOf(n)
		n = -1
		for i, p := range parents {
			if known, ok := depths[p]; ok && known <= below {
				continue
			}
			depths[p] = below
			if i < len(parents)-1 {
				stack = append(stack, p)
			} else {
				n = p
			}
		}
		if n < 0 {
			return stack, nil
		}
	}
}

// toLimits finds the commits that have a parent which a walk with options leaves out: git's
// get_shallow_commits_by_rev_list.
func (d *deepening) toLimits(ctx context.Context, wants []object.ID, options DeepenOptions) error {
	w := NewWalker(d.view, WalkOptions{Since: options.Since})
	w.Graph = d.history
	tips, err := d.history.CommitsOf(ctx, wants)
	if err != nil {
		return err
	}
	if err := w.Start(ctx, tips, options.Not); err != nil {
		return err
	}
	list, err := w.List(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return ErrNoCommits
	}
	for _, n := range list {
		d.inside[n] = struct{}{}
	}
	for _, n := range list {
		if slices.ContainsFunc(d.history.ParentsOf(n), func(p int32) bool { _, ok := d.inside[p]; return !ok }) {
			d.boundary = append(d.boundary, n)
		}
	}
	for _, n := range d.boundary {
		delete(d.inside, n)
	}
	return nil
}

// answer returns the part of the boundary that is new to the client.
func (d *deepening) answer() (shallow, unshallow []object.ID, err error) {
	told := make(map[object.ID]struct{}, len(d.client)+len(d.boundary))
	for _, id := range d.client {
		told[id] = struct{}{}
	}
	for _, n := range d.boundary {
		id := d.history.ID(n)
		if _, inside := d.inside[n]; inside {
			continue
		}
		if _, known := told[id]; !known {
			told[id] = struct{}{}
			shallow = append(shallow, id)
		}
	}
	for _, id := range d.client {
		n := d.history.table.Find(id)
		if _, inside := d.inside[n]; inside && n >= 0 {
			unshallow = append(unshallow, id)
		}
	}
	return shallow, unshallow, nil
}
