package odb

import (
	"context"
	"errors"
	"fmt"

	"packhorse/pack/object"
)

// changedPaths gathers the paths at which two trees differ: files, and the folders that they lie in.
type changedPaths struct {
	view     *View
	depthMax int
	files    int
	paths    map[string]struct{}
}

// errManyPaths says that more paths changed than a filter holds.
var errManyPaths = errors.New("odb: many paths changed")

// filterOf returns the filter of the changes from one tree to another.
func (v *View) filterOf(ctx context.Context, old, tree object.ID) (pathFilter, error) {
	c := changedPaths{view: v, depthMax: v.store.limits.TreeDepth, paths: make(map[string]struct{})}
	err := c.diff(ctx, "", old, tree)
	if errors.Is(err, errManyPaths) {
		return filterOfMany, nil
	}
	if err != nil {
		return nil, err
	}
	return newPathFilter(c.paths), nil
}

// diff adds what differs in the folder that prefix ends in, empty or with a slash behind it. An old entry is taken out of a table by the new
// one of its name, so that the order of a tree, which old tools got wrong, does not matter.
func (c *changedPaths) diff(ctx context.Context, prefix string, old, tree object.ID) error {
	if old == tree {
		return nil
	}
	if c.depthMax--; c.depthMax < 0 {
		return fmt.Errorf("trees nested too deep: %w", ErrTooLarge)
	}
	defer func() { c.depthMax++ }()
	before, err := c.read(ctx, old)
	if err != nil {
		return err
	}
	after, err := c.read(ctx, tree)
	if err != nil {
		return err
	}
	same := object.CommonEntries(before, after)
	entries := make(map[string]pathEntry)
	was, is := object.IterTree(before[same:]), object.IterTree(after[same:])
	for was.Next() {
		entries[string(was.Name)] = pathEntry{was.Mode.Canonical(), was.ID}
	}
	for is.Next() {
		name := string(is.Name)
		if err := c.add(ctx, prefix+name, entries[name], pathEntry{is.Mode.Canonical(), is.ID}); err != nil {
			return err
		}
		delete(entries, name)
	}
	if err := errors.Join(was.Err(), is.Err()); err != nil {
		return fmt.Errorf("trees %s and %s: %w", old, tree, err)
	}
	for name, entry := range entries {
		if err := c.add(ctx, prefix+name, entry, pathEntry{}); err != nil {
			return err
		}
	}
	return nil
}

// add takes in how a path changed.
func (c *changedPaths) add(ctx context.Context, path string, old, now pathEntry) error {
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
	if c.files++; c.files > filterPathsMax {
		return errManyPaths
	}
	for at := len(path); at > 0; at-- {
		if at == len(path) || path[at] == '/' {
			c.paths[path[:at]] = struct{}{}
		}
	}
	return nil
}

// folder returns the tree that an entry is, the empty one if it is none.
func (e pathEntry) folder() object.ID {
	if e.mode.IsTree() {
		return e.id
	}
	return object.EmptyTreeID
}

func (e pathEntry) isFile() bool { return e.mode != 0 && !e.mode.IsTree() }

func (c *changedPaths) read(ctx context.Context, tree object.ID) ([]byte, error) {
	if tree == object.EmptyTreeID {
		return nil, nil
	}
	t, data, err := c.view.Read(ctx, tree)
	if err == nil && t != object.TypeTree {
		err = fmt.Errorf("%w: %s is a %s where a tree belongs", errFormat, tree, t)
	}
	return data, err
}
