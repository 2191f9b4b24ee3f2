package odb

import (
	"context"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// LineDiff compares two versions of a file by lines. The form of its result is that of who reads
// it; the store keeps bytes, none if it is empty. It may keep the texts, which never change. For
// one goroutine.
type LineDiff func(ctx context.Context, before, after []byte) ([]byte, error)

// PathHistories are the histories that the segments of a view have of one path, held open for a
// walk. For one goroutine.
type PathHistories struct{ open []openHistory }

// openHistory is the history of a segment, with the graph file that says which commits it is about.
type openHistory struct {
	histories, graph *segment.SharedFile
	file, rows       *segment.File
	path             *segment.PathHistory
}

// OpenHistories opens the histories of the path with a [segment.PathID]. It ignores damaged files.
// The caller closes them.
func (v *View) OpenHistories(ctx context.Context, path object.ID) (*PathHistories, error) {
	p := &PathHistories{}
	for _, l := range v.Segments() {
		if l.Histories == nil || l.Rows == nil {
			continue
		}
		if err := p.add(ctx, l, path); err != nil && !segment.Unreadable(err) {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// add opens the history of a segment, if it has one of the path.
func (p *PathHistories) add(ctx context.Context, l *SegmentLayer, path object.ID) error {
	file, err := l.Histories.Acquire(ctx)
	if err != nil {
		return err
	}
	history, err := file.PathHistory(ctx, path)
	if history == nil || err != nil {
		l.Histories.Release()
		return err
	}
	rows, err := l.Rows.Acquire(ctx)
	if err != nil {
		l.Histories.Release()
		return err
	}
	p.open = append(p.open, openHistory{l.Histories, l.Rows, file, rows, history})
	return nil
}

// Close releases the files.
func (p *PathHistories) Close() {
	for _, o := range p.open {
		o.histories.Release()
		o.graph.Release()
	}
	p.open = nil
}

// Find returns what a commit changed at the path against one of its parents, by index: the change,
// or nil if it changed nothing there. known is false for a commit that no history is about, and for
// other parents than the first of one that has changed nothing against that.
func (p *PathHistories) Find(
	ctx context.Context, commit object.ID, parent int,
) (change *segment.PathChange, known bool, err error) {
	for _, o := range p.open {
		if found, ok := o.path.Find(commit, parent); ok {
			return &found, true, nil
		}
		if parent > 0 {
			if _, ok := o.path.Find(commit, 0); ok {
				return nil, true, nil
			}
			continue
		}
		_, ok, err := o.rows.Lookup(ctx, commit)
		if segment.Unreadable(err) {
			continue
		}
		if ok || err != nil {
			return nil, ok, err
		}
	}
	return nil, false, nil
}

// Lines returns the lines that a commit changed against one of its parents, by index, in the form
// of [LineDiff], empty if they are not known. They are shared and read-only.
func (p *PathHistories) Lines(ctx context.Context, commit object.ID, parent int) ([]byte, error) {
	for _, o := range p.open {
		c, ok := o.path.Find(commit, parent)
		if !ok || !c.Lines.Known() {
			continue
		}
		lines, err := o.file.Lines(ctx, c.Lines)
		if !segment.Unreadable(err) {
			return lines, err
		}
	}
	return nil, nil
}
