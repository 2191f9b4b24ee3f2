package odb

import (
	"context"

	"packhorse/odb/bloom"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// FirstParentTree returns the tree that the path filter of a commit compares the commit's tree
// with.
func (v *View) FirstParentTree(ctx context.Context, row *GraphRow) (object.ID, error) {
	if len(row.Parents) == 0 {
		return object.EmptyTreeID, nil
	}
	parent, err := v.Graph(ctx, row.Parents[0])
	return parent.Tree, err
}

// PathFilters are the filters of a view: those of its hot layers, and its filter files, held
// open for a walk. For one goroutine.
type PathFilters struct {
	auxiliaryFiles
	hot []*hotLayer // the newest first
}

// OpenFilters opens the filter files of a view. It ignores damaged ones. The caller closes them.
func (v *View) OpenFilters(ctx context.Context) (*PathFilters, error) {
	files, err := v.openAuxiliary(ctx, func(l *SegmentLayer) *segment.SharedFile { return l.Filters })
	if err != nil {
		return nil, err
	}
	return &PathFilters{auxiliaryFiles: files, hot: v.hotLayers()}, nil
}

// Find returns the filter of a commit, nil if there is none. It does not use a damaged file again.
// It tries files first: they answer faster than keys.
func (p *PathFilters) Find(ctx context.Context, commit object.ID) (bloom.Filter, error) {
	for i, g := range p.files {
		if g == nil {
			continue
		}
		f, ok, err := g.PathFilter(ctx, commit)
		if segment.Unreadable(err) {
			p.files[i] = nil
			continue
		}
		if ok || err != nil {
			return f, err
		}
	}
	for _, l := range p.hot {
		f, ok, err := l.pathFilter(ctx, commit)
		if segment.Unreadable(err) {
			continue
		}
		if ok || err != nil {
			return f, err
		}
	}
	return nil, nil
}
