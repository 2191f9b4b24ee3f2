package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"packhorse/odb/bloom"
	"packhorse/pack/object"
)

// changedPaths collects the paths at which two trees differ: files, and the folders that contain
// them.
type changedPaths struct {
	view     *View
	depthMax int
	files    int
	read     int64 // bytes of trees
	readMax  int64
	paths    map[string]struct{}
}

// errManyTrees says that the changed trees exceed the bytes that may be read.
var errManyTrees = errors.New("odb: many trees changed")

// errManyPaths says that more paths changed than a filter can hold.
var errManyPaths = errors.New("odb: many paths changed")

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
	c := changedPaths{
		view: v, depthMax: v.store.limits.TreeDepth, read: *read, readMax: readMax, paths: make(map[string]struct{}),
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
	return bloom.New(c.paths), nil
}

// diff adds the differences in the folder prefix, which is empty or ends in a slash. The new entry
// of a name removes the old one from a table, so the order of a tree, which old tools got wrong,
// does not matter.
func (c *changedPaths) diff(ctx context.Context, prefix string, old, tree object.ID) error {
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
		if err := c.add(ctx, prefix+name, entries[name], fresh[i].changedEntry); err != nil {
			return err
		}
		delete(entries, name)
	}
	for name, entry := range entries {
		if err := c.add(ctx, prefix+name, entry, changedEntry{}); err != nil {
			return err
		}
	}
	return nil
}

// changedEntry is an entry of a tree without its name; zero if there is none.
type changedEntry struct {
	mode object.Mode
	id   object.ID
}

type namedEntry struct {
	name string
	changedEntry
}

// differentEntries returns the entries of two trees that are not in both, and some equal ones where
// a tree is out of order. It omits the common end of both.
func differentEntries(before, after []byte) (old map[string]changedEntry, fresh []namedEntry, err error) {
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
				old = make(map[string]changedEntry)
			}
			old[string(was.Name)] = changedEntry{was.Mode.Canonical(), was.ID}
			haveOld = false
		default:
			fresh = append(fresh, namedEntry{string(is.Name), changedEntry{is.Mode.Canonical(), is.ID}})
			haveNew = false
		}
	}
}

// add adds the change of a path.
func (c *changedPaths) add(ctx context.Context, path string, old, now changedEntry) error {
	if old == now {
		return nil
	}
	if oldTree, nowTree := old.folder(), now.folder(); oldTree != nowTree {
		if err := c.diff(ctx, path+"/", oldTree, nowTree); err != nil {
			return err
		}
	}
	if !old.isFile() && !now.isFile() {
		return nil
	}
	if c.files++; c.files > bloom.PathsMax {
		return errManyPaths
	}
	for at := len(path); at > 0; at-- {
		if at == len(path) || path[at] == '/' {
			c.paths[path[:at]] = struct{}{}
		}
	}
	return nil
}

// folder returns the tree of an entry, the empty tree if the entry is none.
func (e changedEntry) folder() object.ID {
	if e.mode.IsTree() {
		return e.id
	}
	return object.EmptyTreeID
}

func (e changedEntry) isFile() bool { return e.mode != 0 && !e.mode.IsTree() }

func (c *changedPaths) tree(ctx context.Context, tree object.ID) ([]byte, error) {
	if c.read > c.readMax && tree != object.EmptyTreeID {
		return nil, errManyTrees
	}
	data, err := c.view.ReadTree(ctx, tree)
	c.read += int64(len(data))
	return data, err
}
