package revwalk

import (
	"context"

	"packhorse/odb"
	"packhorse/pack/object"
)

// PathReader tells what commits and trees have at one path. It reads every tree on the way once,
// and knows from filters about commits that changed nothing there. It belongs to one goroutine;
// memory is about 100 bytes a tree.
type PathReader struct{ changes *pathChanges }

// NewPathReader returns a reader for a path that is not empty. The caller closes it before v.
func NewPathReader(ctx context.Context, v *odb.View, path string) (*PathReader, error) {
	p, err := newPathChanges(ctx, v, path)
	if err != nil {
		return nil, err
	}
	return &PathReader{changes: p}, nil
}

// Close releases the filters.
func (r *PathReader) Close() { r.changes.filters.Close() }

// Untouched reports whether commit is known to have at the path what its first parent has. False
// may also mean that nobody knows.
func (r *PathReader) Untouched(ctx context.Context, commit object.ID) (bool, error) {
	return r.changes.untouched(ctx, commit)
}

// Entry returns what lies at the path in a tree: its canonical mode, 0 where nothing does. Errors:
// [odb.ErrNotFound] and what reading gives.
func (r *PathReader) Entry(ctx context.Context, tree object.ID) (object.Mode, object.ID, error) {
	at := pathEntry{object.ModeTree, tree}
	for i := range r.changes.names {
		var err error
		if at, err = r.changes.entry(ctx, at, i); err != nil {
			return 0, object.ZeroID, err
		}
	}
	return at.mode, at.id, nil
}
