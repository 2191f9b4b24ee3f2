package engine

import (
	"context"
	"fmt"

	"packhorse/pack/object"
)

// lastCommit returns the commit that changed the file last, as git log -1 -- PATH finds it.
func (r *Repository) lastCommit(ctx context.Context, at position, f File) (object.ID, error) {
	for commit, err := range at.view.WalkPath(ctx, []object.ID{at.revision.Commit}, f.Path) {
		if err != nil {
			return object.ZeroID, fmt.Errorf("find the last commit of %q: %w", f.Path, err)
		}
		return commit.ID, nil
	}
	return at.revision.Commit, nil // nothing changed it: it is an empty folder
}
