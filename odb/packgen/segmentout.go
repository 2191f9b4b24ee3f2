package packgen

import (
	"cmp"
	"context"
	"io"
	"iter"
	"slices"

	"packhorse/odb/file"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// segmentEntry is an entry of a segment that is to be sent.
type segmentEntry struct {
	segment.Record
	ordinal    uint32
	baseOffset int64 // of a delta
	// whole is the object deflated ahead, if the entry is a delta that the client could not resolve.
	whole *deflating
}

// writeSegment writes the objects to send of a segment, in its order.
func (o *packOutput) writeSegment(ctx context.Context, layer int) error {
	g := o.plan.inv.segments[layer]
	o.run = entryRun{region: g.Region()}
	entries := o.pickSorted(ctx, layer)
	var ahead file.Ahead // of a pass over all entries
	if o.isDense(layer) {
		entries = o.pickInOrder(ctx, layer)
		ahead = file.NewAhead(g.Handle, g.DataSize)
		o.run.region.Data = newNearReader(g.Handle, g.DataSize)
	}
	if !o.plan.isWhole(layer) {
		entries = o.deflateAhead(ctx, layer, entries)
	}
	for e, err := range entries {
		if err != nil {
			return err
		}
		ahead.At(e.Offset)
		if err := o.writeStored(ctx, layer, &e); err != nil {
			return err
		}
	}
	o.passed[layer] = g.DataSize
	return o.copyRun(ctx)
}

// isDense reports whether so many objects of a segment are sent that a pass over all of its entries
// is best.
func (o *packOutput) isDense(layer int) bool {
	// sortedMax is the largest number of entries that are sorted.
	const sortedMax = 1 << 16
	count := o.plan.send.count(layer)
	return count > sortedMax || count > o.plan.inv.segments[layer].Count/8
}

// pickSorted gives the entries to send of a segment in their stored order, sorted in memory.
func (o *packOutput) pickSorted(ctx context.Context, layer int) iter.Seq2[segmentEntry, error] {
	return func(yield func(segmentEntry, error) bool) {
		entries := make([]segmentEntry, 0, o.plan.send.count(layer))
		err := o.plan.send.each(layer, func(ordinal uint32) error {
			entries = append(entries, segmentEntry{ordinal: ordinal})
			return nil
		})
		if err == nil {
			err = o.fillIn(ctx, layer, entries)
		}
		if err != nil {
			yield(segmentEntry{}, err)
			return
		}
		slices.SortFunc(entries, func(a, b segmentEntry) int { return cmp.Compare(a.Offset, b.Offset) })
		ahead := newSparseAhead(o.plan.inv.segments[layer].Handle, entries)
		for i, e := range entries {
			ahead.at(i)
			if !yield(e, nil) {
				return
			}
		}
	}
}

// pickInOrder gives the same entries by a pass over the pack order, in constant memory.
func (o *packOutput) pickInOrder(ctx context.Context, layer int) iter.Seq2[segmentEntry, error] {
	return func(yield func(segmentEntry, error) bool) {
		g := o.plan.inv.segments[layer]
		var gathered [64]segmentEntry
		entries := gathered[:0]
		pass := func() bool {
			if err := o.fillIn(ctx, layer, entries); err != nil {
				return yield(segmentEntry{}, err)
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return false
				}
			}
			entries = gathered[:0]
			return true
		}
		for ordinal, err := range g.InPackOrder(ctx, 0, uint32(g.Count)) {
			if err != nil {
				yield(segmentEntry{}, err)
				return
			}
			if !o.plan.send.has(newHandle(layer, ordinal)) {
				continue
			}
			if entries = append(entries, segmentEntry{ordinal: ordinal}); len(entries) == len(gathered) && !pass() {
				return
			}
		}
		pass()
	}
}

// fillIn reads the records of entries and the places of their bases. Records lie in the order of
// IDs, so each one is a cache miss: short loops let the processor overlap several of them.
func (o *packOutput) fillIn(ctx context.Context, layer int, entries []segmentEntry) (err error) {
	records := o.records[layer]
	for i := range entries {
		if entries[i].Record, err = records.Record(ctx, entries[i].ordinal); err != nil {
			return err
		}
	}
	for i := range entries {
		if e := &entries[i]; e.Base != segment.NoOrdinal {
			if e.baseOffset, err = records.Offset(ctx, e.Base); err != nil {
				return err
			}
		}
	}
	return nil
}

// deflateAhead passes entries on, some of them later, and meanwhile queues those to send whole for
// deflating.
func (o *packOutput) deflateAhead(
	ctx context.Context, layer int, entries iter.Seq2[segmentEntry, error],
) iter.Seq2[segmentEntry, error] {
	return func(yield func(segmentEntry, error) bool) {
		var ahead []segmentEntry
		size := int64(0) // of the objects in ahead that are deflated
		for e, err := range entries {
			if err == nil {
				err = o.deflateOne(ctx, layer, &e)
			}
			if err != nil {
				yield(e, err)
				return
			}
			ahead = append(ahead, e)
			if e.whole != nil {
				size += e.Size
			}
			passed := 0
			for ; passed < len(ahead) &&
				(size == 0 || size > deflateBytesAhead || len(ahead)-passed > deflateCountAhead); passed++ {
				if ahead[passed].whole != nil {
					size -= ahead[passed].Size
				}
				if !yield(ahead[passed], nil) {
					return
				}
			}
			ahead = slices.Delete(ahead, 0, passed)
		}
		for _, e := range ahead {
			if !yield(e, nil) {
				return
			}
		}
	}
}

const (
	deflateBytesAhead = 8 << 20
	deflateCountAhead = 64
)

// deflateOne queues an entry for deflating if it is a delta that the client could not resolve.
func (o *packOutput) deflateOne(ctx context.Context, layer int, e *segmentEntry) error {
	h := newHandle(layer, e.ordinal)
	if _, found := o.plan.deltas.get(h); found || e.Base == segment.NoOrdinal || e.Size > deflateBytesAhead ||
		o.plan.send.has(newHandle(layer, e.Base)) {
		return nil
	}
	base, err := o.plan.inv.segments[layer].ID(ctx, e.Base)
	if err != nil {
		return err
	}
	if _, ok, err := o.plan.resolvable(ctx, base, e.Type); ok || err != nil {
		return err
	}
	e.whole = o.deflaters.Add(ctx, h)
	return nil
}

// writeStored writes an entry of a segment, or adds it to the run to copy if none of its bytes
// change.
func (o *packOutput) writeStored(ctx context.Context, layer int, e *segmentEntry) error {
	h := newHandle(layer, e.ordinal)
	o.passed[layer] = e.Offset
	if o.placedAt(h) != 0 {
		return nil
	}
	found, isFound := o.plan.deltas.get(h)
	same := !isFound && e.whole == nil && o.isVerbatim(layer, e)
	if same && e.PackedSize <= streamBufferSize {
		return o.addToRun(ctx, layer, e)
	}
	if err := o.copyRun(ctx); err != nil {
		return err
	}
	if !same && e.whole == nil && o.plan.order != nil {
		return o.writeEarly(ctx, h)
	}
	o.moved(layer, e.Offset)
	switch {
	case same:
		o.wrote(1)
		return o.run.region.CopyPacked(ctx, o.stream, e.Record, object.ZeroID, 0)
	case isFound:
		return o.writeFound(ctx, h, &found)
	case e.whole != nil:
		return o.writeDeflated(ctx, e.whole)
	default:
		return o.writeRebased(ctx, o.run.region, layer, e)
	}
}

// isVerbatim reports whether every byte of an entry can be sent as it is stored, as the next entry
// of the run.
func (o *packOutput) isVerbatim(layer int, e *segmentEntry) bool {
	switch {
	case e.Base == segment.NoOrdinal:
		return true
	case segment.IsRefusedDelta(true, e.Size):
		return false
	case !o.plan.request.OFSDelta || o.plan.request.Thin || !o.plan.send.has(newHandle(layer, e.Base)):
		return false // a thin pack may have to name the base otherwise; see deltaHeader
	case o.plan.order != nil && (o.placedAt(newHandle(layer, e.Base)) != 0 || e.baseOffset > e.Offset):
		return false
	case e.baseOffset > e.Offset:
		return true // only a delta that names its base by ID can precede it
	default:
		return o.shiftOf(layer, e.baseOffset) == o.stream.offset+o.run.size-e.Offset
	}
}

// nearReader reads small pieces that lie near each other with few calls.
type nearReader struct {
	src    file.ReaderAt
	size   int64
	window []byte
	start  int64
}

const nearReaderSize = 64 << 10

// newNearReader returns a nearReader of src, which is [file.Cached] if src is.
func newNearReader(src file.ReaderAt, size int64) file.ReaderAt {
	r := &nearReader{src: src, size: size}
	if cached, ok := src.(file.Cached); ok {
		return &nearCached{nearReader: r, Cached: cached}
	}
	return r
}

// nearCached is a nearReader of a copy.
type nearCached struct {
	*nearReader
	file.Cached
}

// Forget implements [file.Cached].
func (r *nearCached) Forget(offset, size int64) {
	r.window = r.window[:0]
	r.Cached.Forget(offset, size)
}

// ReadAt implements [file.ReaderAt], for one goroutine.
func (r *nearReader) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if len(p) > nearReaderSize/4 {
		return r.src.ReadAt(ctx, p, off)
	}
	if off < r.start || off+int64(len(p)) > r.start+int64(len(r.window)) {
		if r.window == nil {
			r.window = make([]byte, nearReaderSize)
		}
		r.window, r.start = r.window[:max(min(nearReaderSize, r.size-off), 0)], off
		if err := segment.ReadFull(ctx, r.src, r.window, off); err != nil {
			r.window = r.window[:0]
			return 0, err
		}
	}
	n := copy(p, r.window[off-r.start:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
