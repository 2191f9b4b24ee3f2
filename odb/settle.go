package odb

import (
	"context"
	"fmt"
	"slices"

	"packhorse/pack"
	"packhorse/pack/object"
)

// settle puts the objects into the quarantine, once they have been found right.
func (in *Ingest) settle(ctx context.Context) error {
	if in.intake.segment == nil {
		return in.settleHot(ctx)
	}
	segment := in.intake.segment
	if in.stats.BaseCount > 0 {
		if err := segment.Complete(ctx, in.table.count()+in.stats.BaseCount); err != nil {
			return fmt.Errorf("complete thin pack: %w", err)
		}
	}
	for i := range in.commits.commits {
		commit := &in.commits.commits[i]
		if err := segment.AddGraph(ctx, commit.id, in.commits.row(commit)); err != nil {
			return err
		}
	}
	in.commits = commitNotes{}
	sealed, err := segment.Finish(ctx)
	if err != nil {
		return fmt.Errorf("finish segment: %w", err)
	}
	in.quarantine.addSegment(sealed)
	return nil
}

// appendWhole adds an object to the segment, in place of the trailer if it is the first, and returns its offset.
func (in *Ingest) appendWhole(ctx context.Context, id object.ID, t object.Type, data []byte) (int64, error) {
	segment := in.intake.segment
	if in.stats.BaseCount == 0 {
		segment.Rewind(in.table.offsets[in.table.count()])
	}
	row, err := segment.AppendWhole(id, t, data)
	if err != nil {
		return 0, err
	}
	in.stats.BaseCount++
	return row.Offset, segment.AddRow(ctx, row)
}

// addEmptyTree stores the empty tree, which something names and nobody sent.
func (in *Ingest) addEmptyTree(ctx context.Context) error {
	if in.intake.segment != nil {
		_, err := in.appendWhole(ctx, object.EmptyTreeID, object.TypeTree, nil)
		return err
	}
	in.emptyTree = true
	return nil
}

// settleHot puts the objects of a small pack into the quarantine, as they came.
func (in *Ingest) settleHot(ctx context.Context) error {
	slices.SortFunc(in.found, func(a, b finding) int { return int(a.ordinal) - int(b.ordinal) })
	depths, err := in.hotDepths(ctx)
	if err != nil {
		return err
	}
	for i := range in.found {
		value, err := in.hotValue(ctx, uint32(i), depths)
		if err != nil {
			return err
		}
		if err := in.addHot(ctx, value); err != nil {
			return err
		}
	}
	if !in.emptyTree {
		return nil
	}
	return in.addHot(ctx, &hotValue{
		ID: object.EmptyTreeID, Type: object.TypeTree, Encoding: EncodingZlib, Payload: pack.Deflate(nil, nil, pack.LevelFast),
	})
}

func (in *Ingest) addHot(ctx context.Context, value *hotValue) error {
	var row *GraphRow
	if at, ok := in.commits.find(value.ID); ok {
		row = in.commits.row(&in.commits.commits[at])
	}
	return in.quarantine.addHot(ctx, value, row)
}

// hotValue is the value of an object of a pack in memory, as it came; or whole, if its delta chain has grown too long.
func (in *Ingest) hotValue(ctx context.Context, ordinal uint32, depths []int) (*hotValue, error) {
	f := &in.found[ordinal]
	header, n, err := in.entryHeader(ordinal)
	if err != nil {
		return nil, err
	}
	packed := in.intake.memory[f.row.Offset:][:f.row.PackedSize]
	value := &hotValue{
		ID: f.row.ID, Type: f.row.Type, Size: f.row.Size, ContentSize: header.Size, Encoding: EncodingZlib, Payload: packed[n:],
	}
	if base := in.table.bases[ordinal]; base != noOrdinal {
		value.Base = in.hotBase(base)
	}
	if depths[ordinal] == 0 && !value.Base.IsZero() {
		return in.undelta(ctx, ordinal, value)
	}
	return value, nil
}

func (in *Ingest) hotBase(base uint32) object.ID {
	if in.external(base) {
		return in.thin[int(base)-in.table.count()].id
	}
	return in.found[base].row.ID
}

// undelta stores an object whole, if that keeps to the limit of a value.
func (in *Ingest) undelta(ctx context.Context, ordinal uint32, value *hotValue) (*hotValue, error) {
	w := newResolveWorker(newResolver(in, 0))
	w.push(branch{ordinal: ordinal})
	if err := w.restore(ctx, 0); err != nil {
		return nil, err
	}
	payload := pack.Deflate(nil, w.stack[0].content.data, pack.LevelDefault)
	if len(payload) <= in.limits.HotValueBytes {
		value.Base, value.ContentSize, value.Payload = object.ZeroID, value.Size, payload
	}
	return value, w.clear()
}

// hotDepthMax is how many deltas the hot tier puts behind each other. Every push may add to the chain of the one before.
const hotDepthMax = 50

// hotDepths returns how many deltas lie below each object; 0 for one that is to be stored whole.
func (in *Ingest) hotDepths(ctx context.Context) ([]int, error) {
	depths := make([]int, in.table.count())
	known := newOrdinalSet(len(depths))
	for i := range depths {
		path := []uint32{}
		at := uint32(i)
		for !in.external(at) && !known.has(at) && in.table.bases[at] != noOrdinal {
			path = append(path, at)
			at = in.table.bases[at]
		}
		depth, err := 0, error(nil)
		switch {
		case in.external(at):
			depth, err = in.storedDepth(ctx, in.hotBase(at))
		case known.has(at):
			depth = depths[at]
		}
		if err != nil {
			return nil, err
		}
		for _, at := range slices.Backward(path) {
			if depth++; depth > hotDepthMax {
				depth = 0
			}
			depths[at] = depth
			known.set(at)
		}
	}
	return depths, nil
}

// storedDepth counts the deltas below a stored object, up to hotDepthMax.
func (in *Ingest) storedDepth(ctx context.Context, id object.ID) (int, error) {
	for depth := 0; ; depth++ {
		entry, err := in.view.Entry(ctx, id)
		if err != nil {
			return 0, err
		}
		if !entry.Delta() || depth == hotDepthMax {
			return depth, nil
		}
		id = entry.Base
	}
}
