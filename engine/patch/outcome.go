package patch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"packhorse/pack/object"
)

// outcome collects the changes of the parts: first all removals, then all new files, in their
// order.
func (a *applier) outcome(ctx context.Context, results []result) (Outcome, error) {
	removed := make(map[string]bool)
	written := make(map[string]Change)
	for i := range results {
		r := &results[i]
		if r.isDelete || !r.isNew && !r.isCopy {
			removed[r.oldName] = true
		}
		if r.isDelete {
			continue
		}
		change, reason := r.change()
		if reason != "" {
			return Outcome{Rejected: &Rejection{Path: r.newName, Reason: reason}}, nil
		}
		written[r.newName] = change
	}
	for path := range written {
		reason, err := a.collides(ctx, path, removed, written)
		if err != nil {
			return Outcome{}, err
		}
		if reason != "" {
			return Outcome{Rejected: &Rejection{Path: path, Reason: reason}}, nil
		}
	}
	for path := range removed {
		if _, ok := written[path]; ok {
			continue
		}
		_, ok, err := a.base.file(ctx, path)
		if err != nil {
			return Outcome{}, err
		}
		if ok {
			written[path] = Change{Path: path, Remove: true}
		}
	}
	changes := slices.SortedFunc(maps.Values(written), func(x, y Change) int {
		if x.Remove != y.Remove {
			if x.Remove {
				return -1
			}
			return 1
		}
		return cmp.Compare(x.Path, y.Path)
	})
	return Outcome{Changes: changes}, nil
}

// change is the change of the tree at the result's path.
func (r *result) change() (Change, string) {
	c := Change{Path: r.newName, Mode: r.mode, ID: r.content.id}
	switch {
	case r.newName == "" || r.newName[0] == '/':
		return c, "it is no path in a repository"
	case r.mode.IsGitlink():
		text, ok := strings.CutPrefix(string(r.content.link), linkPrefix)
		if !ok || len(text) < hexSize {
			return c, "the patch does not name the submodule's commit"
		}
		id, err := object.ParseID(strings.ToLower(text[:hexSize]))
		if err != nil || id.IsZero() {
			return c, "the patch does not name the submodule's commit"
		}
		c.ID = id
	case r.mode.IsSymlink():
		c.Mode = object.ModeSymlink
	case r.mode&0o100 != 0:
		c.Mode = object.ModeExec
	default:
		c.Mode = object.ModeBlob
	}
	return c, ""
}

// collides says whether a written path needs a folder where a file is, or is a folder with files in
// it.
func (a *applier) collides(
	ctx context.Context, path string, removed map[string]bool, written map[string]Change,
) (string, error) {
	for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
		above := path[:i]
		_, ok := written[above]
		if !ok && !removed[above] {
			var err error
			if _, ok, err = a.base.file(ctx, above); err != nil {
				return "", err
			}
		}
		if ok {
			return fmt.Sprintf("%s is a file", above), nil
		}
	}
	e, ok, err := a.base.lookup(ctx, path)
	if !ok || !e.mode.IsTree() || err != nil {
		return "", err
	}
	kept, err := a.base.keeps(ctx, path, removed)
	if kept == "" || err != nil {
		return "", err
	}
	return fmt.Sprintf("it is a folder, and %s stays", kept), nil
}
