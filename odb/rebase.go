package odb

import (
	"context"

	"packhorse/pack"
	"packhorse/pack/object"
)

// writeRebased writes a delta of a segment whose base is elsewhere than it was, or its object whole when the client could not find the base.
func (o *packOutput) writeRebased(ctx context.Context, layer int, e *segmentEntry) error {
	header, ok, err := o.rebasedHeader(ctx, layer, e)
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

// rebasedHeader is deltaHeader for a delta of a segment.
func (o *packOutput) rebasedHeader(ctx context.Context, layer int, e *segmentEntry) (pack.EntryHeader, bool, error) {
	if o.plan.request.OFSDelta && o.plan.send.has(newHandle(layer, e.Base)) && e.baseOffset < e.Offset {
		return o.behind(pack.EntryHeader{}, e.baseOffset+o.shiftOf(layer, e.baseOffset)), true, nil
	}
	base, err := o.plan.inv.segments[layer].id(ctx, e.Base)
	if err != nil {
		return pack.EntryHeader{}, false, err
	}
	return o.deltaHeader(ctx, base, e.Type)
}

// writeLargeDelta writes a delta that does not fit in memory behind another header.
func (o *packOutput) writeLargeDelta(ctx context.Context, layer int, e *segmentEntry, header pack.EntryHeader) error {
	at := location{layer: o.plan.inv.layers[layer], ordinal: e.ordinal}
	stored, err := o.run.region.entry(ctx, at, e.segmentRecord)
	if err != nil {
		return err
	}
	header.Size = stored.ContentSize
	if err := o.writeHeader(header); err != nil {
		return err
	}
	return o.plan.inv.view.copyPacked(ctx, o.stream, &stored)
}

// deltaHeader returns the header, but for its size, of a delta against an object; false when the client could not resolve it.
func (o *packOutput) deltaHeader(ctx context.Context, base object.ID, t object.Type) (pack.EntryHeader, bool, error) {
	header := pack.EntryHeader{Kind: pack.KindRefDelta, BaseID: base}
	h, ok, err := o.plan.resolvable(ctx, base, t)
	if !ok || err != nil || !o.plan.send.has(h) {
		return header, ok, err
	}
	offset, err := o.offsetOf(ctx, h)
	if err != nil || offset == 0 {
		return header, false, err
	}
	return o.behind(header, offset), true, nil
}

// behind returns the header of a delta whose base was written at offset, in the short form if the client takes it.
func (o *packOutput) behind(header pack.EntryHeader, offset int64) pack.EntryHeader {
	if o.plan.request.OFSDelta {
		return pack.EntryHeader{Kind: pack.KindOFSDelta, BaseDistance: o.stream.offset - offset}
	}
	return header
}

// writeFound writes a delta that was made for this pack. Its base may come later: what that builds on in turn was made for the pack too, and
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
