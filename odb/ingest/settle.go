package ingest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// settle puts the checked objects into the quarantine.
func (in *Ingest) settle(ctx context.Context) error {
	if in.intake.segment == nil {
		return in.settleHot(ctx)
	}
	rewritten, err := in.deduplicate(ctx)
	if err != nil {
		return fmt.Errorf("drop repeated objects: %w", err)
	}
	segment := in.intake.segment
	if len(in.thin) > 0 && !rewritten {
		if err := segment.Complete(ctx, in.table.count()+len(in.thin)); err != nil {
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
	for i := range in.thin {
		if _, sent := in.sentBases[in.thin[i].id]; !sent {
			in.summary.AddThinBase(in.thin[i].id)
		}
	}
	segment.SetSummary(&in.summary)
	if in.options.Own != nil {
		segment.Provisional = in.options.Own.Provisional
		for _, stream := range in.options.Own.Streams {
			segment.AddBlocks(stream.ID, stream.Table, stream.Sums)
		}
	}
	sealed, err := segment.Finish(ctx)
	if err != nil {
		return fmt.Errorf("finish segment: %w", err)
	}
	in.quarantine.AddSegment(sealed)
	return nil
}

// appendWhole adds an object to the segment.
func (in *Ingest) appendWhole(ctx context.Context, base thinBase, data []byte) error {
	row, err := in.rewind().AppendWhole(base.id, base.info.Type, data)
	if err != nil {
		return err
	}
	return in.addBaseRow(ctx, base, &row)
}

// rewind returns the segment, positioned behind the last entry so that objects replace the trailer.
func (in *Ingest) rewind() *segment.Writer {
	if len(in.thin) == 0 {
		in.intake.segment.Rewind(in.table.offsets[in.table.count()])
	}
	return in.intake.segment
}

func (in *Ingest) addBaseRow(ctx context.Context, base thinBase, row *segment.Row) error {
	if err := in.intake.allow(in.intake.segment.Size()); err != nil {
		return err
	}
	base.offset = row.Offset
	in.thin = append(in.thin, base)
	in.stats.BaseCount = len(in.thin)
	return in.intake.segment.AddRow(ctx, *row)
}

// addEmptyTree stores the empty tree, which an object names and the sender did not send.
func (in *Ingest) addEmptyTree(ctx context.Context) error {
	if in.intake.segment == nil {
		in.emptyTree = true
		return nil
	}
	in.distinct++
	return in.appendWhole(ctx, thinBase{id: object.EmptyTreeID, info: odb.Info{Type: object.TypeTree}}, nil)
}

// settleHot puts the objects of a small pack into the quarantine, in their received form. Of a
// repeated object it keeps the entry with the shortest chain, for the reason given at deduplicate.
func (in *Ingest) settleHot(ctx context.Context) error {
	slices.SortFunc(in.found, func(a, b finding) int { return cmp.Compare(a.ordinal, b.ordinal) })
	depths, err := in.hotDepths(ctx)
	if err != nil {
		return err
	}
	order := make([]uint32, len(in.found))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return depths[a] - depths[b] })
	for _, ordinal := range order {
		value, err := in.hotValue(ctx, ordinal, depths[ordinal])
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
	return in.addHot(ctx, &odb.HotValue{
		ID: object.EmptyTreeID, Type: object.TypeTree, Encoding: odb.EncodingZlib, Payload: pack.Deflate(nil, nil,
			pack.LevelFast),
	})
}

func (in *Ingest) addHot(ctx context.Context, value *odb.HotValue) error {
	var row *odb.GraphRow
	if at, ok := in.commits.find(value.ID); ok {
		row = in.commits.row(&in.commits.commits[at])
	}
	return in.quarantine.AddPacked(ctx, value, row)
}

// hotValue returns the value of an object of a pack in memory: in its received form, or whole if
// its delta chain has grown too long.
func (in *Ingest) hotValue(ctx context.Context, ordinal uint32, depth int) (*odb.HotValue, error) {
	f := &in.found[ordinal]
	header, n, err := in.entryHeader(ordinal)
	if err != nil {
		return nil, err
	}
	packed := in.intake.memory[f.row.Offset:][:f.row.PackedSize]
	value := &odb.HotValue{
		ID: f.row.ID, Type: f.row.Type, Size: f.row.Size, ContentSize: header.Size, Encoding: odb.EncodingZlib,
		Payload: packed[n:],
	}
	if base := in.table.bases[ordinal]; base != segment.NoOrdinal {
		value.Base = in.hotBase(base)
	}
	if depth > 0 && depth%(hotDepthMax+1) == 0 {
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

// undelta returns the whole object as a value, if it fits the limit of a value.
func (in *Ingest) undelta(ctx context.Context, ordinal uint32, value *odb.HotValue) (*odb.HotValue, error) {
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

// hotDepthMax is the longest delta chain in the hot tier. Every push may add to the chain of the
// push before.
const hotDepthMax = 50

// hotDepths returns the number of deltas below each object, those of stored bases included.
func (in *Ingest) hotDepths(ctx context.Context) ([]int, error) {
	stored := make([]int, len(in.thin))
	for i := range in.thin {
		depth, err := in.view.DeltaDepth(ctx, in.thin[i].id, hotDepthMax)
		if err != nil {
			return nil, err
		}
		stored[i] = depth
	}
	depths := make([]int, in.table.count())
	for i := range depths {
		at := uint32(i)
		for ; !in.isRoot(at); at = in.table.bases[at] {
			depths[i]++
		}
		if in.external(at) {
			depths[i] += stored[int(at)-len(depths)]
		}
	}
	return depths, nil
}
