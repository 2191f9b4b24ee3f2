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
	hot    []*hotLayer // the newest first
	shared []*segment.SharedFile
	files  []*segment.File
}

// OpenFilters opens the filter files of a view. It ignores damaged ones. The caller closes them.
func (v *View) OpenFilters(ctx context.Context) (*PathFilters, error) {
	p := &PathFilters{hot: v.hotLayers()}
	for _, l := range v.Segments() {
		if l.Filters == nil {
			continue
		}
		g, err := l.Filters.Acquire(ctx)
		if segment.Unreadable(err) {
			continue
		}
		if err != nil {
			p.Close()
			return nil, err
		}
		p.shared, p.files = append(p.shared, l.Filters), append(p.files, g)
	}
	return p, nil
}

// Close releases the filter files.
func (p *PathFilters) Close() {
	for _, f := range p.shared {
		f.Release()
	}
	p.shared, p.files = nil, nil
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
