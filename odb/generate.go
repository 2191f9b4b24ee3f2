package odb

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"
	"sort"

	"packhorse/pack"
	"packhorse/pack/object"
)

// WriteTo writes the pack to w and returns its size. It may be called more than once. It holds a few buffers, the deltas that were found
// for this pack, and where runs of entries went, 16 bytes each.
//
// Entries go out as they are stored, runs of neighbours in one copy, each verified before it is written (those over 1 MiB while they
// are). A stored delta stays one where its base is in the pack or, in a thin pack, known to be at the client; else its object goes out whole.
// A delta is written behind its base, or its base lies in the same segment, so chains have an end.
//
// After an error, [ErrCorrupt] among them, what was written must not be used: it has no valid trailer.
func (p *PackPlan) WriteTo(ctx context.Context, w io.Writer, progress Progress) (int64, error) {
	known, err := p.storedTrailer()
	if err != nil {
		return 0, err
	}
	o := &packOutput{
		plan:   p,
		stream: newPackStream(w, known),
		shifts: make([][]shift, len(p.inv.segments)),
		loose:  make([]int64, p.inv.looseCount()),
	}
	o.progress.report = progress
	defer o.stream.stop()
	err = o.write(ctx)
	return o.stream.offset, err
}

// storedTrailer returns the trailer of the only segment that is sent, when it is sent from end to end: then it is the pack.
func (p *PackPlan) storedTrailer() ([]byte, error) {
	for layer, g := range p.inv.segments {
		if p.count != g.count || p.send.count(layer) != g.count || !p.request.OFSDelta || len(p.deltas) > 0 {
			continue
		}
		header, trailer := make([]byte, pack.HeaderSize), make([]byte, pack.TrailerSize)
		if err := readFullAt(g.file, header, 0); err != nil {
			return nil, g.damaged(err)
		}
		if err := readFullAt(g.file, trailer, g.dataSize-pack.TrailerSize); err != nil {
			return nil, g.damaged(err)
		}
		if h, err := pack.ParseHeader(header); err == nil && h.Version == 2 && int(h.Count) == g.count {
			return trailer, nil
		}
	}
	return nil, nil
}

// packOutput is the state of one [PackPlan.WriteTo].
type packOutput struct {
	plan    *PackPlan
	stream  *packStream
	shifts  [][]shift // of each segment: where its entries went
	loose   []int64   // where loose objects went; 0: not written, looseBusy: being written
	run     entryRun
	packed  []byte // scratch
	header  []byte // scratch
	written int64

	progress progressMeter
}

// shift says by how much the entries of a segment moved, from a stored offset on up to that of the next shift.
type shift struct{ from, by int64 }

const looseBusy = -1

func (o *packOutput) write(ctx context.Context) error {
	p := o.plan
	header := pack.Header{Version: 2, Count: uint32(p.count)}.Append(nil)
	if _, err := o.stream.Write(header); err != nil {
		return err
	}
	for layer := range p.inv.segments {
		if err := o.writeSegment(ctx, layer); err != nil {
			return err
		}
	}
	err := p.send.each(p.inv.looseLayer(), func(number uint32) error { return o.writeLoose(ctx, number) })
	if err != nil {
		return err
	}
	if o.written != int64(p.count) {
		return fmt.Errorf("odb: %d objects in a pack of %d", o.written, p.count)
	}
	if err := o.stream.end(); err != nil {
		return err
	}
	o.progress.end(phaseWriting, o.written, o.written)
	return nil
}

func (o *packOutput) wrote(count int64) {
	o.written += count
	o.progress.step(phaseWriting, o.written, int64(o.plan.count))
}

// writeSegment writes what is sent of a segment, as it lies there.
func (o *packOutput) writeSegment(ctx context.Context, layer int) error {
	g := o.plan.inv.segments[layer]
	o.run = entryRun{region: g.region()}
	for e, err := range o.plan.inDataOrder(ctx, layer) {
		if err != nil {
			return err
		}
		if err := o.writeStored(ctx, layer, e); err != nil {
			return err
		}
	}
	return o.copyRun(ctx)
}

// segmentEntry is an entry of a segment.
type segmentEntry struct {
	ordinal uint32
	segmentRecord
}

// inDataOrder gives the entries of a segment that are sent in the order in which they are stored.
func (p *PackPlan) inDataOrder(ctx context.Context, layer int) iter.Seq2[segmentEntry, error] {
	// sortedMax is how many entries are sorted rather than picked from all of the segment.
	const sortedMax = 1 << 16
	g, count := p.inv.segments[layer], p.send.count(layer)
	if count > sortedMax || count > g.count/8 {
		return p.pickInOrder(ctx, layer)
	}
	return func(yield func(segmentEntry, error) bool) {
		entries := make([]segmentEntry, 0, count)
		err := p.send.each(layer, func(ordinal uint32) error {
			r, err := g.record(ctx, ordinal)
			entries = append(entries, segmentEntry{ordinal, r})
			return err
		})
		if err != nil {
			yield(segmentEntry{}, err)
			return
		}
		slices.SortFunc(entries, func(a, b segmentEntry) int { return cmp.Compare(a.Offset, b.Offset) })
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (p *PackPlan) pickInOrder(ctx context.Context, layer int) iter.Seq2[segmentEntry, error] {
	return func(yield func(segmentEntry, error) bool) {
		g := p.inv.segments[layer]
		for ordinal, err := range g.inPackOrder(ctx, 0, uint32(g.count)) {
			if err == nil && !p.send.has(newHandle(layer, ordinal)) {
				continue
			}
			var r segmentRecord
			if err == nil {
				r, err = g.record(ctx, ordinal)
			}
			if !yield(segmentEntry{ordinal, r}, err) || err != nil {
				return
			}
		}
	}
}

// writeStored writes an entry of a segment, or adds it to the run that is to be copied when nothing in it changes.
func (o *packOutput) writeStored(ctx context.Context, layer int, e segmentEntry) error {
	h := newHandle(layer, e.ordinal)
	if found, ok := o.plan.deltas[h]; ok {
		if err := o.copyRun(ctx); err != nil {
			return err
		}
		o.moved(layer, e.Offset)
		return o.writeFound(ctx, found)
	}
	by := o.stream.offset + o.run.size - e.Offset
	same, err := o.isVerbatim(ctx, layer, e, by)
	if err != nil {
		return err
	}
	if same && e.PackedSize <= streamBufferSize {
		if o.run.size+e.PackedSize > streamBufferSize || !o.run.continues(e) {
			if err := o.copyRun(ctx); err != nil {
				return err
			}
		}
		o.moved(layer, e.Offset)
		o.run.add(e)
		return nil
	}
	if err := o.copyRun(ctx); err != nil {
		return err
	}
	o.moved(layer, e.Offset)
	if same {
		o.wrote(1)
		return o.run.region.copyPacked(ctx, o.stream, e.segmentRecord, object.ZeroID, 0)
	}
	return o.writeChanged(ctx, layer, e)
}

// isVerbatim reports whether an entry that moves by a distance can be sent with every byte as it is.
func (o *packOutput) isVerbatim(ctx context.Context, layer int, e segmentEntry, by int64) (bool, error) {
	if e.Base == noOrdinal {
		return true, nil
	}
	if !o.plan.request.OFSDelta || !o.plan.send.has(newHandle(layer, e.Base)) {
		return false, nil
	}
	base, err := o.plan.inv.segments[layer].record(ctx, e.Base)
	if err != nil {
		return false, err
	}
	if base.Offset > e.Offset {
		return true, nil // only a delta that names its base by ID can have it behind
	}
	return o.shiftOf(layer, base.Offset) == by, nil
}

// moved notes where the next entry of a segment goes.
func (o *packOutput) moved(layer int, from int64) {
	by := o.stream.offset + o.run.size - from
	shifts := o.shifts[layer]
	if len(shifts) == 0 || shifts[len(shifts)-1].by != by {
		o.shifts[layer] = append(shifts, shift{from, by})
	}
}

// shiftOf returns by how much an entry moved that was sent before.
func (o *packOutput) shiftOf(layer int, offset int64) int64 {
	shifts := o.shifts[layer]
	if last := len(shifts) - 1; last >= 0 && shifts[last].from <= offset {
		return shifts[last].by
	}
	i := sort.Search(len(shifts), func(i int) bool { return shifts[i].from > offset })
	return shifts[max(i-1, 0)].by
}

// entryRun is neighbouring entries of a segment that are copied together.
type entryRun struct {
	region  dataRegion
	start   int64
	size    int64
	entries []runEntry
}

type runEntry struct {
	size  int64
	crc32 uint32
}

func (r *entryRun) continues(e segmentEntry) bool {
	return len(r.entries) > 0 && r.start+r.size == e.Offset
}

func (r *entryRun) add(e segmentEntry) {
	if len(r.entries) == 0 {
		r.start = e.Offset
	}
	r.entries = append(r.entries, runEntry{e.PackedSize, e.CRC32})
	r.size += e.PackedSize
}

// copyRun writes the entries that have been gathered.
func (o *packOutput) copyRun(ctx context.Context) error {
	r := &o.run
	if len(r.entries) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	space, err := o.stream.space(int(r.size))
	if err != nil {
		return err
	}
	if err := readFullAt(r.region.data, space, r.start); err != nil {
		return r.region.damaged(object.ZeroID, err)
	}
	rest, offset := space, r.start
	for _, e := range r.entries {
		if crc32.ChecksumIEEE(rest[:e.size]) != e.crc32 {
			return r.region.damaged(object.ZeroID, fmt.Errorf("%w: entry at %d fails its CRC-32", errFormat, offset))
		}
		rest = rest[e.size:]
		offset += e.size
	}
	o.stream.commit(len(space))
	o.wrote(int64(len(r.entries)))
	r.size, r.entries = 0, r.entries[:0]
	return nil
}

// writeChanged writes an entry of a segment whose base is elsewhere than it was.
func (o *packOutput) writeChanged(ctx context.Context, layer int, e segmentEntry) error {
	g := o.plan.inv.segments[layer]
	baseID, err := g.id(ctx, e.Base)
	if err != nil {
		return err
	}
	header, ok, err := o.deltaHeader(ctx, baseID, e.Type)
	if err != nil {
		return err
	}
	if !ok {
		return o.writeWhole(ctx, newHandle(layer, e.ordinal))
	}
	if e.PackedSize > wholeMax {
		return o.writeLargeDelta(ctx, layer, e, header)
	}
	o.packed, err = o.run.region.readPacked(ctx, o.packed[:0], e.segmentRecord, object.ZeroID)
	if err != nil {
		return err
	}
	stored, payload, err := o.run.region.parse(o.packed, e.segmentRecord, object.ZeroID)
	if err != nil {
		return err
	}
	header.Size = stored.Size
	return o.writeEntry(header, payload)
}

// deltaHeader returns the header, but for its size, of a delta against the object of baseID; false when the client could not resolve it.
func (o *packOutput) deltaHeader(ctx context.Context, baseID object.ID, t object.Type) (pack.EntryHeader, bool, error) {
	header := pack.EntryHeader{Kind: pack.KindRefDelta, BaseID: baseID}
	base, ok, err := o.plan.resolvable(ctx, baseID, t)
	if !ok || err != nil || !o.plan.send.has(base) {
		return header, ok, err
	}
	offset, err := o.offsetOf(ctx, base)
	if err != nil || offset == 0 {
		return header, false, err
	}
	return o.behind(header, offset), true, nil
}

// behind returns the header of a delta whose base was written at offset, in the short form if the client knows it.
func (o *packOutput) behind(header pack.EntryHeader, offset int64) pack.EntryHeader {
	if o.plan.request.OFSDelta {
		return pack.EntryHeader{Kind: pack.KindOFSDelta, BaseDistance: o.stream.offset - offset}
	}
	return header
}

// writeFound writes a delta that was made for this pack. Its base may come later: what it builds on in turn was made for the pack too, and
// has an end.
func (o *packOutput) writeFound(ctx context.Context, found foundDelta) error {
	header := pack.EntryHeader{Kind: pack.KindRefDelta, BaseID: found.base}
	base, err := o.plan.inv.locate(ctx, found.base)
	if err != nil {
		return err
	}
	if o.plan.send.has(base) {
		offset, err := o.offsetOf(ctx, base)
		if err != nil {
			return err
		}
		if offset != 0 {
			header = o.behind(header, offset)
		}
	}
	header.Size = found.size
	return o.writeEntry(header, found.packed)
}

// offsetOf returns where an object that is sent went, 0 when it has not been written yet.
func (o *packOutput) offsetOf(ctx context.Context, h handle) (int64, error) {
	layer := h.layer()
	if layer == o.plan.inv.looseLayer() {
		return max(o.loose[h.number()], 0), nil
	}
	r, err := o.plan.inv.segments[layer].record(ctx, h.number())
	if err != nil {
		return 0, err
	}
	shifts := o.shifts[layer]
	if len(shifts) == 0 || r.Offset < shifts[0].from {
		return 0, nil
	}
	offset := r.Offset + o.shiftOf(layer, r.Offset)
	if offset >= o.stream.offset {
		return 0, nil
	}
	return offset, nil
}

// writeEntry writes an entry from its header and its zlib stream.
func (o *packOutput) writeEntry(header pack.EntryHeader, payload []byte) error {
	o.header = header.Append(o.header[:0])
	if _, err := o.stream.Write(o.header); err != nil {
		return err
	}
	_, err := o.stream.Write(payload)
	o.wrote(1)
	return err
}

// writeLargeDelta writes a delta that does not fit in memory behind another header.
func (o *packOutput) writeLargeDelta(ctx context.Context, layer int, e segmentEntry, header pack.EntryHeader) error {
	at := location{layer: o.plan.inv.layers[layer], ordinal: e.ordinal}
	stored, err := o.run.region.entry(ctx, at, e.segmentRecord)
	if err != nil {
		return err
	}
	header.Size = stored.ContentSize
	o.header = header.Append(o.header[:0])
	if _, err := o.stream.Write(o.header); err != nil {
		return err
	}
	o.wrote(1)
	return o.plan.inv.view.copyPacked(ctx, o.stream, &stored)
}

// writeWhole writes an object that is stored as a delta which the client could not resolve.
func (o *packOutput) writeWhole(ctx context.Context, h handle) error {
	info, err := o.plan.inv.stat(ctx, h)
	if err != nil {
		return err
	}
	header := pack.EntryHeader{Kind: pack.EntryKind(info.Type), Size: info.Size}
	if info.Size > wholeMax {
		return o.writeLarge(ctx, h, header)
	}
	_, data, err := o.plan.inv.read(ctx, h)
	if err != nil {
		return err
	}
	o.packed = pack.Deflate(o.packed[:0], data, generateLevel)
	return o.writeEntry(header, o.packed)
}

// generateLevel is the compression of what is deflated while a client waits.
const generateLevel = pack.LevelFast

// writeLarge writes an object that does not fit in memory, block by block.
func (o *packOutput) writeLarge(ctx context.Context, h handle, header pack.EntryHeader) error {
	id, err := o.plan.inv.id(ctx, h)
	if err != nil {
		return err
	}
	content, err := o.plan.inv.view.Open(ctx, id)
	if err != nil {
		return err
	}
	defer content.Close()
	o.header = header.Append(o.header[:0])
	if _, err := o.stream.Write(o.header); err != nil {
		return err
	}
	z := &blockWriter{dst: o.stream}
	if _, err := content.WriteTo(z); err != nil {
		return err
	}
	o.wrote(1)
	return z.finish()
}

// blockWriter deflates what is written to it, a block at a time.
type blockWriter struct {
	dst    io.Writer
	blocks pack.Blocks
	block  []byte
	packed []byte
}

func (z *blockWriter) Write(p []byte) (int, error) {
	if z.block == nil {
		z.block = make([]byte, 0, pack.BlockSize)
	}
	written := 0
	for written < len(p) {
		n := copy(z.block[len(z.block):pack.BlockSize], p[written:])
		z.block = z.block[:len(z.block)+n]
		written += n
		if len(z.block) == pack.BlockSize {
			if err := z.flush(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

func (z *blockWriter) flush() error {
	block := pack.EncodeBlock(nil, z.block, generateLevel)
	z.packed = z.blocks.Append(z.packed[:0], block)
	z.block = z.block[:0]
	_, err := z.dst.Write(z.packed)
	return err
}

func (z *blockWriter) finish() error {
	if len(z.block) > 0 {
		if err := z.flush(); err != nil {
			return err
		}
	}
	_, err := z.dst.Write(z.blocks.Finish(z.packed[:0]))
	return err
}

// writeLoose writes an object that no segment holds, behind the base of its delta.
func (o *packOutput) writeLoose(ctx context.Context, number uint32) error {
	if o.loose[number] != 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	o.loose[number] = looseBusy
	e, err := o.plan.looseEntry(ctx, number)
	if err != nil {
		return err
	}
	h := newHandle(o.plan.inv.looseLayer(), number)
	if found, ok := o.plan.deltas[h]; ok {
		o.loose[number] = o.stream.offset
		return o.writeFound(ctx, found)
	}
	header := pack.EntryHeader{Kind: pack.EntryKind(e.Type), Size: e.Size}
	if e.Delta() {
		if err := o.writeLooseBase(ctx, e.Base); err != nil {
			return err
		}
		delta, ok, err := o.deltaHeader(ctx, e.Base, e.Type)
		if err != nil {
			return err
		}
		if !ok {
			o.loose[number] = o.stream.offset
			return o.writeWhole(ctx, h)
		}
		header = delta
		header.Size = e.ContentSize
	}
	o.loose[number] = o.stream.offset
	return o.writeLooseEntry(ctx, &e, header)
}

// writeLooseBase writes the base of a loose delta if it is loose too and sent. One that is being written is part of a cycle, which can come
// about when two writers store each other's versions at once; it counts as absent.
func (o *packOutput) writeLooseBase(ctx context.Context, id object.ID) error {
	base, err := o.plan.inv.locate(ctx, id)
	if err != nil || base.layer() != o.plan.inv.looseLayer() || !o.plan.send.has(base) {
		return err
	}
	return o.writeLoose(ctx, base.number())
}

func (o *packOutput) writeLooseEntry(ctx context.Context, e *StoredEntry, header pack.EntryHeader) error {
	if e.Encoding == EncodingZlib {
		o.header = header.Append(o.header[:0])
		if _, err := o.stream.Write(o.header); err != nil {
			return err
		}
		o.wrote(1)
		return o.plan.inv.view.copyPacked(ctx, o.stream, e)
	}
	content, err := e.at.layer.content(ctx, e.at)
	if err != nil {
		return err
	}
	o.packed = pack.Deflate(o.packed[:0], content, generateLevel)
	return o.writeEntry(header, o.packed)
}
