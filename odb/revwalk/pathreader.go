package revwalk

import (
	"context"

	"packhorse/odb"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// PathReader returns the entries that commits and trees have at one path. It reads every tree on
// the way once, and uses filters and path histories to recognize commits that changed nothing
// there. It belongs to one goroutine; memory is about 100 bytes a tree, and 84 a row of a history.
type PathReader struct{ changes *pathChanges }

// NewPathReader returns a reader for a path that is not empty. The caller closes it before v.
func NewPathReader(ctx context.Context, v *odb.View, path string) (*PathReader, error) {
	p, err := newPathChanges(ctx, v, path)
	if err != nil {
		return nil, err
	}
	return &PathReader{changes: p}, nil
}

// Close releases filters and histories.
func (r *PathReader) Close() { r.changes.close() }

// Look finds out what is known, without reading a tree, of a commit and one of its parents, by
// index: that it has the same entry at the path; what it changed; or, with neither, nothing.
func (r *PathReader) Look(
	ctx context.Context, commit object.ID, parent int,
) (same bool, change *segment.PathChange, err error) {
	found, change, err := r.changes.look(ctx, commit, parent)
	return found == untouched, change, err
}

// Lines returns the lines that a commit changed against one of its parents, by index, in the form
// of [odb.LineDiff], empty if no history knows them. They are shared and read-only.
func (r *PathReader) Lines(ctx context.Context, commit object.ID, parent int) ([]byte, error) {
	return r.changes.history.Lines(ctx, commit, parent)
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
