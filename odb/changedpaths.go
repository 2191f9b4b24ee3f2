package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"packhorse/odb/bloom"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// treeChanges walks the paths at which two trees differ: folders and files.
type treeChanges struct {
	view     *View
	depthMax int
	read     int64 // bytes of trees
	readMax  int64
	change   TreeChangeFunc
}

// TreeChangeFunc is called with a path at which two trees differ, and the entries there, a folder
// before what is in it. It returns whether to look into a folder.
type TreeChangeFunc func(path string, old, now segment.Version) (into bool, err error)

// errManyTrees says that the changed trees exceed the bytes that may be read.
var errManyTrees = errors.New("odb: many trees changed")

// errManyPaths says that more paths changed than a filter can hold.
var errManyPaths = errors.New("odb: many paths changed")

// TreeChanges calls change with the paths at which two trees differ. Its error ends the walk.
func (v *View) TreeChanges(ctx context.Context, old, tree object.ID, change TreeChangeFunc) error {
	c := treeChanges{view: v, depthMax: v.store.limits.TreeDepth, readMax: math.MaxInt64, change: change}
	return c.diff(ctx, "", old, tree)
}

// FilterOf returns the filter of the changes from one tree to another.
func (v *View) FilterOf(ctx context.Context, old, tree object.ID) (bloom.Filter, error) {
	var read int64
	return v.filterWithin(ctx, old, tree, math.MaxInt64, &read)
}

// filterWithin is FilterOf that counts the bytes of the trees that it reads in read. It returns nil
// when they exceed readMax.
func (v *View) filterWithin(
	ctx context.Context, old, tree object.ID, readMax int64, read *int64,
) (bloom.Filter, error) {
	paths, files := make(map[string]struct{}), 0
	c := treeChanges{
		view: v, depthMax: v.store.limits.TreeDepth, read: *read, readMax: readMax,
		change: func(path string, old, now segment.Version) (bool, error) {
			if !isFile(old) && !isFile(now) {
				return true, nil
			}
			if files++; files > bloom.PathsMax {
				return false, errManyPaths
			}
			for at := len(path); at > 0; at-- {
				if at == len(path) || path[at] == '/' {
					paths[path[:at]] = struct{}{}
				}
			}
			return true, nil
		},
	}
	err := c.diff(ctx, "", old, tree)
	*read = c.read
	switch {
	case errors.Is(err, errManyPaths):
		return bloom.Full, nil
	case errors.Is(err, errManyTrees):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return bloom.New(paths), nil
}

// diff walks the differences in the folder prefix, which is empty or ends in a slash. The new entry
// of a name removes the old one from a table, so the order of a tree, which old tools got wrong,
// does not matter.
func (c *treeChanges) diff(ctx context.Context, prefix string, old, tree object.ID) error {
	if old == tree {
		return nil
	}
	if c.depthMax--; c.depthMax < 0 {
		return fmt.Errorf("trees nested too deep: %w", ErrTooLarge)
	}
	defer func() { c.depthMax++ }()
	before, err := c.tree(ctx, old)
	if err != nil {
		return err
	}
	after, err := c.tree(ctx, tree)
	if err != nil {
		return err
	}
	same := object.CommonEntries(before, after)
	entries, fresh, err := differentEntries(before[same:], after[same:])
	if err != nil {
		return fmt.Errorf("trees %s and %s: %w", old, tree, err)
	}
	for i := range fresh {
		name := fresh[i].name
		if err := c.add(ctx, prefix+name, entries[name], fresh[i].Version); err != nil {
			return err
		}
		delete(entries, name)
	}
	for name, entry := range entries {
		if err := c.add(ctx, prefix+name, entry, segment.Version{}); err != nil {
			return err
		}
	}
	return nil
}

type namedEntry struct {
	name string
	segment.Version
}

// differentEntries returns the entries of two trees that are not in both, and some equal ones where
// a tree is out of order. It omits the common end of both.
func differentEntries(before, after []byte) (old map[string]segment.Version, fresh []namedEntry, err error) {
	was, is := object.IterTree(before), object.IterTree(after)
	tail := object.CommonSuffix(before, after)
	haveOld, haveNew := false, false // an entry that is not told yet
	for {
		if left := len(was.Rest()); !haveOld && !haveNew && left <= tail && left == len(is.Rest()) {
			return old, fresh, nil
		}
		haveOld, haveNew = haveOld || was.Next(), haveNew || is.Next()
		order := bytes.Compare(was.Name, is.Name)
		switch {
		case !haveOld && !haveNew:
			return old, fresh, errors.Join(was.Err(), is.Err())
		case haveOld && haveNew && order == 0 && was.ID == is.ID && was.Mode == is.Mode:
			haveOld, haveNew = false, false
		case haveOld && (!haveNew || order <= 0):
			if old == nil {
				old = make(map[string]segment.Version)
			}
			old[string(was.Name)] = segment.Version{Mode: was.Mode.Canonical(), ID: was.ID}
			haveOld = false
		default:
			fresh = append(fresh, namedEntry{string(is.Name), segment.Version{Mode: is.Mode.Canonical(), ID: is.ID}})
			haveNew = false
		}
	}
}

// add walks the change of a path, and of what is in it.
func (c *treeChanges) add(ctx context.Context, path string, old, now segment.Version) error {
	if old == now {
		return nil
	}
	into, err := c.change(path, old, now)
	if err != nil || !into {
		return err
	}
	if oldTree, nowTree := folder(old), folder(now); oldTree != nowTree {
		return c.diff(ctx, path+"/", oldTree, nowTree)
	}
	return nil
}

// folder returns the tree of an entry, the empty tree if the entry is none.
func folder(v segment.Version) object.ID {
	if v.Mode.IsTree() {
		return v.ID
	}
	return object.EmptyTreeID
}

func isFile(v segment.Version) bool { return v.Mode != 0 && !v.Mode.IsTree() }

func (c *treeChanges) tree(ctx context.Context, tree object.ID) ([]byte, error) {
	if c.read > c.readMax && tree != object.EmptyTreeID {
		return nil, errManyTrees
	}
	data, err := c.view.ReadTree(ctx, tree)
	c.read += int64(len(data))
	return data, err
}
