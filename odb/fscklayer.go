package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"packhorse/odb/file"
	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// hotLayer checks every object of a hot layer, that no graph row is without its commit, and what
// was added when.
func (f *fsck) hotLayer(ctx context.Context, l *hotLayer) error {
	if err := f.partKeys(ctx, manifestLayer{kind: segment.KindHot, id: l.id}); err != nil {
		return err
	}
	err := f.objects(ctx, nil, func(ctx context.Context, yield func([]Location) error) error {
		return f.hotLocations(ctx, l, yield)
	})
	if err != nil {
		return err
	}
	err = f.hotKeys(ctx, l, hot.TableGraph, func(id object.ID, _ []byte) error {
		if _, ok, err := l.find(ctx, id); ok || err != nil {
			return err
		}
		return fmt.Errorf("%w: a graph row without its commit", ErrDisagree)
	})
	if err != nil {
		return err
	}
	err = f.hotKeys(ctx, l, hot.TableFilter, func(id object.ID, value []byte) error {
		return f.hotFilter(ctx, l, id, value)
	})
	if err != nil {
		return err
	}
	return hot.CheckAdditions(ctx, &l.rows, func(id object.ID, err error) error {
		return f.noted(l.id, id, l.store.damaged(l.id, id, err))
	})
}

// hotKeys calls check with the rows of a table under a hot layer, and reports the errors.
func (f *fsck) hotKeys(
	ctx context.Context, l *hotLayer, table byte, check func(id object.ID, value []byte) error,
) error {
	for pair, err := range l.store.keys.Scan(ctx, hot.Range(table, l.id)) {
		if err != nil {
			return err
		}
		id, ok := hot.IDOfKey(pair.Key)
		if ok {
			err = check(id, pair.Value)
		} else {
			err = fmt.Errorf("%w: key %x is no object's", segment.ErrFormat, pair.Key)
		}
		if err := f.noted(l.id, id, err); err != nil {
			return err
		}
	}
	return nil
}

func (f *fsck) hotLocations(ctx context.Context, l *hotLayer, yield func([]Location) error) error {
	var chunk []Location
	for pair, err := range l.store.keys.Scan(ctx, hot.Range(hot.TableObject, l.id)) {
		if err != nil {
			return err
		}
		id, ok := hot.IDOfKey(pair.Key)
		if !ok {
			f.problem(l.id, object.ZeroID, fmt.Errorf("%w: key %x is no object's", segment.ErrFormat, pair.Key))
			continue
		}
		chunk = append(chunk, Location{layer: l, id: id, ordinal: segment.NoOrdinal, value: bytes.Clone(pair.Value)})
		if len(chunk) == fsckChunk {
			if err := yield(chunk); err != nil {
				return err
			}
			chunk = nil
		}
	}
	return yield(chunk)
}

// segmentLayer checks the files of a segment, and then every object in it.
func (f *fsck) segmentLayer(ctx context.Context, l *SegmentLayer) error {
	if err := f.presence(ctx, l); err != nil {
		return err
	}
	g, err := l.Acquire(ctx)
	if err != nil {
		return f.noted(l.ID, object.ZeroID, err)
	}
	defer l.Release(g)
	parts := append([]manifestLayer{{kind: segment.KindSegment, id: l.ID}}, l.auxiliaries...)
	for _, part := range parts {
		if err := f.partKeys(ctx, part); err != nil {
			return err
		}
	}
	if err := f.segmentFile(ctx, g); err != nil {
		return err
	}
	if l.Rows != nil {
		if err := f.graphFile(ctx, l); err != nil {
			return err
		}
	}
	if l.Bitmaps != nil {
		if err := f.bitmapFile(ctx, l); err != nil {
			return err
		}
	}
	if l.Filters != nil {
		if err := f.filterFile(ctx, l); err != nil {
			return err
		}
	}
	if l.Histories != nil {
		if err := f.historyFile(ctx, l); err != nil {
			return err
		}
	}
	if l.Trigrams != nil {
		if err := f.trigramFile(ctx, l); err != nil {
			return err
		}
	}
	before := f.problems()
	summary, err := newSummaryChecker(ctx, g)
	if err := f.noted(l.ID, object.ZeroID, err); err != nil {
		return err
	}
	err = f.objects(ctx, summary, func(ctx context.Context, yield func([]Location) error) error {
		return f.segmentLocations(ctx, l, g, yield)
	})
	if err != nil || summary == nil || f.problems() > before { // a damaged object has no links
		return err
	}
	return f.noted(l.ID, object.ZeroID, summary.compare(ctx))
}

// partKeys checks that the pool uses a layer or an auxiliary, and that it is registered if it is a
// file.
func (f *fsck) partKeys(ctx context.Context, part manifestLayer) error {
	keys := [][]byte{userKey(part.id, f.view.pool)}
	if part.kind.HasFile() {
		keys = append(keys, registrationKey(part.id))
	}
	return f.keys(ctx, part.id, keys...)
}

// presence checks that the files of a segment can be opened: open files can be read although they
// are deleted.
func (f *fsck) presence(ctx context.Context, l *SegmentLayer) error {
	parts := append([]manifestLayer{{kind: segment.KindSegment, id: l.ID}}, l.auxiliaries...)
	for _, part := range parts {
		open, err := l.store.Files.Open(ctx, part.kind.FileName(part.id))
		switch {
		case errors.Is(err, file.ErrNotFound):
			f.problem(part.id, object.ZeroID, fmt.Errorf("%w: file %s is missing", ErrDisagree, part.kind.FileName(part.id)))
		case err != nil:
			return err
		default:
			if err := open.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// problems returns the number of problems, reported or not.
func (f *fsck) problems() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.met
}

// keys checks that the keys exist which show that a layer or auxiliary file is no leftover. It may
// have left the pool, together with its keys, since the view was made.
func (f *fsck) keys(ctx context.Context, part segment.LayerID, keys ...[]byte) error {
	rows, err := f.view.store.keys.Read(ctx, kv.ReadSet{Keys: keys})
	if err != nil {
		return f.noted(part, object.ZeroID, err)
	}
	for i, key := range keys {
		var err error
		if rows.Values[i] == nil {
			now, _, manifestErr := f.view.store.readManifest(ctx, f.view.store.keys, f.view.pool)
			if errors.Is(manifestErr, ErrNoPool) {
				return nil
			}
			if manifestErr == nil && !now.parts().has(part) {
				return nil
			}
			err = errors.Join(fmt.Errorf("%w: key %x is missing", ErrDisagree, key), manifestErr)
		}
		if err := f.noted(part, object.ZeroID, err); err != nil {
			return err
		}
	}
	return nil
}

// segmentLocations yields the objects in the order of their entries, in which bases tend to be
// near.
func (f *fsck) segmentLocations(
	ctx context.Context, l *SegmentLayer, g segment.Segment, yield func([]Location) error,
) error {
	var chunk []Location
	for ordinal, err := range g.InPackOrder(ctx, 0, uint32(g.Count)) {
		var id object.ID
		if err == nil {
			id, err = g.ID(ctx, ordinal)
		}
		if err != nil {
			return f.noted(l.ID, object.ZeroID, err)
		}
		chunk = append(chunk, Location{layer: l, id: id, ordinal: ordinal})
		if len(chunk) == fsckChunk {
			if err := yield(chunk); err != nil {
				return err
			}
			chunk = nil
		}
	}
	return yield(chunk)
}

// segmentFile checks a segment's index, block by block as it lies on the disk, and its data region
// as a pack.
func (f *fsck) segmentFile(ctx context.Context, g segment.Segment) error {
	if ok, err := f.sections(ctx, g.File); !ok || err != nil {
		return err
	}
	if err := f.sortedIDs(ctx, g.File); err != nil {
		return err
	}
	return f.noted(g.Layer, object.ZeroID, newPackChecker(f, g).check(ctx))
}

// sections reads every block of a file past the cache.
func (f *fsck) sections(ctx context.Context, g *segment.File) (ok bool, err error) {
	ok = true
	err = g.VerifyBlocks(ctx, f.wait, func(damage error) error {
		ok = false
		return f.noted(g.Layer, object.ZeroID, damage)
	})
	return ok && err == nil, err
}

// sortedIDs checks that the IDs are sorted, which lookups rely on.
func (f *fsck) sortedIDs(ctx context.Context, g *segment.File) error {
	var previous object.ID
	for i := range g.Count {
		id, err := g.ID(ctx, uint32(i))
		if err != nil {
			return f.noted(g.Layer, object.ZeroID, err)
		}
		first, end := g.Bucket(id)
		if (i > 0 && previous.Compare(id) >= 0) || i < first || i >= end {
			f.problem(g.Layer, id, fmt.Errorf("%w: its ID is out of order in the index", ErrDisagree))
		}
		previous = id
	}
	return nil
}

// graphFile checks the graph file of a segment: its blocks, and that each of its commits is in the
// segment. The check of a commit compares its row.
func (f *fsck) graphFile(ctx context.Context, l *SegmentLayer) error {
	rows, err := l.Rows.Acquire(ctx)
	if err != nil {
		return f.noted(l.Rows.Layer, object.ZeroID, err)
	}
	defer l.Rows.Release()
	if ok, err := f.sections(ctx, rows); !ok || err != nil {
		return err
	}
	if err := f.sortedIDs(ctx, rows); err != nil {
		return err
	}
	for i := range rows.Count {
		id, err := rows.ID(ctx, uint32(i))
		ok := false
		if err == nil {
			_, ok, err = l.find(ctx, id)
		}
		if err == nil && !ok {
			err = fmt.Errorf("%w: a graph row without its commit", ErrDisagree)
		}
		if err := f.noted(rows.Layer, id, err); err != nil {
			return err
		}
	}
	return nil
}
