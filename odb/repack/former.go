package repack

import (
	"context"

	"packhorse/odb"
	"packhorse/odb/extsort"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// former is a segment with path histories whose commits are most of those of a new segment: its
// rows are taken over, so that the trees of these commits are not compared again. A path without a
// history there has none in the new segment either, since its changes are not known: it waits until
// the segment has grown by a third. All methods accept nil.
type former struct {
	layer     *odb.SegmentLayer
	histories *segment.File
	rows      *segment.File
	paths     map[object.ID]struct{}
}

// The part of the commits that a former segment must have, as a fraction.
const formerShare, formerOf = 3, 4

// findFormer returns the segment of the known ones that has most of the commits, nil if none has
// enough of them.
func (b *historyBuilder) findFormer(ctx context.Context) (*former, error) {
	if b.known == nil {
		return nil, nil
	}
	for _, l := range b.known.Segments() {
		if l.Histories == nil || l.Rows == nil {
			continue
		}
		f, err := openFormer(ctx, l)
		if segment.Unreadable(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		has, err := b.hasMost(ctx, f.rows)
		if has {
			return f, nil
		}
		f.close()
		if err != nil && !segment.Unreadable(err) {
			return nil, err
		}
	}
	return nil, nil
}

func openFormer(ctx context.Context, l *odb.SegmentLayer) (*former, error) {
	histories, err := l.Histories.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := l.Rows.Acquire(ctx)
	if err != nil {
		l.Histories.Release()
		return nil, err
	}
	f := &former{layer: l, histories: histories, rows: rows, paths: make(map[object.ID]struct{}, histories.Count)}
	for i := range uint32(histories.Count) {
		id, err := histories.ID(ctx, i)
		if err != nil {
			f.close()
			return nil, err
		}
		f.paths[id] = struct{}{}
	}
	return f, nil
}

// hasMost reports whether a graph file has most of the commits.
func (b *historyBuilder) hasMost(ctx context.Context, rows *segment.File) (bool, error) {
	if rows.Count*formerOf < b.rows.Count*formerShare {
		return false, nil
	}
	shared := 0
	for i := range uint32(b.rows.Count) {
		id, err := b.rows.ID(ctx, i)
		if err != nil {
			return false, err
		}
		_, ok, err := rows.Lookup(ctx, id)
		if err != nil {
			return false, err
		}
		if ok {
			shared++
		}
	}
	return shared*formerOf >= b.rows.Count*formerShare, nil
}

func (f *former) close() {
	if f != nil {
		f.layer.Histories.Release()
		f.layer.Rows.Release()
	}
}

// knows reports whether all changes of a path are known.
func (f *former) knows(path object.ID) bool {
	if f == nil {
		return true
	}
	_, ok := f.paths[path]
	return ok
}

// collect adds the rows of the commits that the new segment has, too, whose graph file is rows.
func (f *former) collect(
	ctx context.Context, changes *extsort.Sorter, left *int, rows *segment.File, places []uint32,
) error {
	if f == nil {
		return nil
	}
	c := commitChanges{sorter: changes, left: left}
	for i := range uint32(f.histories.Count) {
		path, err := f.histories.ID(ctx, i)
		if err != nil {
			return err
		}
		h, err := f.histories.PathHistoryAt(ctx, i)
		if err != nil {
			return err
		}
		for k := range h.Count() {
			row := h.At(k)
			ordinal, ok, err := rows.Lookup(ctx, row.Commit)
			if err != nil {
				return err
			}
			if !ok {
				continue // pruned
			}
			c.place, c.ordinal = places[ordinal], ordinal
			if err := c.add(ctx, row.Parent, path, row.Old, row.New); err != nil {
				return err
			}
		}
	}
	return nil
}
