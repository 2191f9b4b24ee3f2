package engine

import (
	"context"
	"fmt"
	"strings"

	"packhorse/odb"
	"packhorse/pack/object"
)

// lastCommit returns the commit that changed the file last, as git log -1 -- PATH finds it: the way back follows, at every
// commit, the first parent that has the same file.
func (r *Repository) lastCommit(ctx context.Context, at position, f File) (object.ID, error) {
	names := strings.Split(f.Path, "/")
	trees, err := treesTo(ctx, at.view, at.tree, names)
	if err != nil {
		return object.ZeroID, err
	}
	id, row := at.revision.Commit, at.row
	for {
		if err := ctx.Err(); err != nil {
			return object.ZeroID, err
		}
		same := false
		for _, parent := range row.Parents {
			parentRow, err := at.view.Graph(ctx, parent)
			if err != nil {
				return object.ZeroID, fmt.Errorf("read commit %s: %w", parent, err)
			}
			same, err = sameFile(ctx, at.view, trees, names, parentRow.Tree, f)
			if err != nil {
				return object.ZeroID, err
			}
			if same {
				id, row = parent, parentRow
				break
			}
		}
		if !same {
			return id, nil
		}
	}
}

// treesTo returns the tree of every folder on the way to the last of names, the root first.
func treesTo(ctx context.Context, view *odb.View, root object.ID, names []string) ([]object.ID, error) {
	trees := []object.ID{root}
	for i := range len(names) - 1 {
		found, err := lookupPath(ctx, view, trees[i], names[i])
		if err != nil {
			return nil, err
		}
		trees = append(trees, found.ID)
	}
	return trees, nil
}

// sameFile tells whether the tree root has f at names too. trees are the folders on the way to f where it is known; they are
// moved on to those below root when the answer is yes, so that the next question ends at the first folder that is equal.
func sameFile(ctx context.Context, view *odb.View, trees []object.ID, names []string, root object.ID, f File) (bool, error) {
	way := make([]object.ID, 0, len(trees))
	tree := root
	for i, name := range names {
		if tree == trees[i] {
			copy(trees, way)
			return true, nil
		}
		way = append(way, tree)
		_, data, err := view.Read(ctx, tree)
		if err != nil {
			return false, fmt.Errorf("read folder on the way to %q: %w", f.Path, err)
		}
		mode, id, ok, err := findEntry(data, name)
		if err != nil {
			return false, fmt.Errorf("read folder on the way to %q: %w", f.Path, err)
		}
		last := i == len(names)-1
		switch {
		case !ok, last && (id != f.ID || mode != f.Mode), !last && !mode.IsTree():
			return false, nil
		case last:
			copy(trees, way)
			return true, nil
		}
		tree = id
	}
	return false, nil
}
