package diff

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// ErrTooDeep says that folders are nested too deeply.
var ErrTooDeep = errors.New("diff: folders are nested too deeply")

// depthMax bounds the nesting of folders.
const depthMax = 2048

// Trees yields the files that differ between two trees, in the order of git diff-tree -r: by path,
// with a folder at the place of its name and a slash. object.ZeroID stands for the tree without
// entries. Common subtrees are not opened.
//
// paths, unless empty, restricts the walk to these files, and to the content of these folders.
// Errors: [ErrTooDeep], object.ErrMalformed, and those of objects.
func Trees(ctx context.Context, objects Objects, before, after object.ID, paths []string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		w := treeWalk{ctx: ctx, objects: objects, paths: paths, yield: yield}
		if err := w.pair(before, after, depthMax); err != nil && !errors.Is(err, errStopped) {
			yield(Change{}, err)
		}
	}
}

// errStopped ends a walk whose caller has seen enough.
var errStopped = errors.New("diff: stopped")

// treeWalk is one call of Trees.
type treeWalk struct {
	ctx     context.Context // a walk is used within one call
	objects Objects
	paths   []string
	yield   func(Change, error) bool
	folder  []byte // that is walked, with its slash; empty for the root
}

// pair walks two trees of one folder.
func (w *treeWalk) pair(before, after object.ID, depth int) error {
	if depth == 0 {
		return fmt.Errorf("%w: %.200q", ErrTooDeep, w.folder)
	}
	if before == after {
		return nil
	}
	oldData, err := w.read(before)
	if err != nil {
		return err
	}
	newData, err := w.read(after)
	if err != nil {
		return err
	}
	for {
		same := object.CommonEntries(oldData, newData)
		oldData, newData = oldData[same:], newData[same:]
		older, newer := object.IterTree(oldData), object.IterTree(newData)
		haveOld, haveNew := older.Next(), newer.Next()
		if err := errors.Join(older.Err(), newer.Err()); err != nil {
			return fmt.Errorf("read folder %q: %w", w.folder, err)
		}
		if !haveOld && !haveNew {
			return nil
		}
		switch order := compare(&older, haveOld, &newer, haveNew); {
		case order < 0:
			oldData = older.Rest()
			err = w.entry(&older, nil, depth)
		case order > 0:
			newData = newer.Rest()
			err = w.entry(nil, &newer, depth)
		default:
			oldData, newData = older.Rest(), newer.Rest()
			err = w.entry(&older, &newer, depth)
		}
		if err != nil {
			return err
		}
	}
}

// compare orders the next entries of two trees; an absent one comes last.
func compare(older *object.TreeIter, haveOld bool, newer *object.TreeIter, haveNew bool) int {
	switch {
	case !haveNew:
		return -1
	case !haveOld:
		return 1
	default:
		return object.CompareNames(older.Name, older.Mode.IsTree(), newer.Name, newer.Mode.IsTree())
	}
}

func (w *treeWalk) read(tree object.ID) ([]byte, error) {
	data, err := w.objects.ReadTree(w.ctx, tree)
	if err != nil {
		return nil, fmt.Errorf("read folder %q: %w", w.folder, err)
	}
	return data, nil
}

// entry handles a name that one tree has, or both have with the same kind; nil is the side without
// it.
func (w *treeWalk) entry(older, newer *object.TreeIter, depth int) error {
	var from, to object.TreeIter
	some := older
	if older != nil {
		from = *older
	}
	if newer != nil {
		to = *newer
		some = newer
	}
	if from.ID == to.ID && from.Mode.Canonical() == to.Mode.Canonical() && older != nil && newer != nil {
		return nil
	}
	above := len(w.folder)
	defer func() { w.folder = w.folder[:above] }()
	w.folder = append(w.folder, some.Name...)
	isTree := some.Mode.IsTree()
	if !w.wanted(isTree) {
		return nil
	}
	if isTree {
		w.folder = append(w.folder, '/')
		return w.pair(from.ID, to.ID, depth-1)
	}
	if err := fair.Pause(w.ctx); err != nil {
		return err
	}
	path := string(w.folder)
	change := Change{Status: Modified, Old: Entry{Path: path}, New: Entry{Path: path}}
	if older != nil {
		change.Old.Mode, change.Old.ID = from.Mode.Canonical(), from.ID
	}
	if newer != nil {
		change.New.Mode, change.New.ID = to.Mode.Canonical(), to.ID
	}
	switch {
	case older == nil:
		change.Status = Added
	case newer == nil:
		change.Status = Deleted
	case (change.Old.Mode^change.New.Mode)&object.ModeMask != 0:
		change.Status = TypeChanged
	}
	if !w.yield(change, nil) {
		return errStopped
	}
	return nil
}

// wanted reports whether the path in w.folder is selected or, being a folder, may contain a
// selected path.
func (w *treeWalk) wanted(isTree bool) bool {
	if len(w.paths) == 0 {
		return true
	}
	for _, path := range w.paths {
		n := min(len(path), len(w.folder))
		if path[:n] != string(w.folder[:n]) {
			continue
		}
		if len(path) == len(w.folder) || len(w.folder) > n && w.folder[n] == '/' ||
			isTree && len(path) > n && path[n] == '/' {
			return true
		}
	}
	return false
}
