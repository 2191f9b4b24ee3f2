package revwalk

import (
	"context"

	"packhorse/odb"
	"packhorse/pack/object"
)

// PathReader returns the entries that commits and trees have at one path. It reads every tree on
// the way once, and uses filters to recognize commits that changed nothing there. It belongs to one
// goroutine; memory is about 100 bytes a tree.
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

// Untouched reports whether a filter proves that commit has the same entry at the path as its first
// parent. False may mean unknown.
func (r *PathReader) Untouched(ctx context.Context, commit object.ID) (bool, error) {
	return r.changes.untouched(ctx, commit)
}

// Entry returns the entry at the path in a tree: its canonical mode, 0 if there is none, and its
// ID. Errors: [odb.ErrNotFound] and those of reading.
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
