package packgen

import (
	"context"

	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// writeRebased writes a delta of a segment whose base has moved, or the whole object if the client
// could not find the base.
func (o *packOutput) writeRebased(ctx context.Context, region segment.Region, layer int, e *segmentEntry) error {
	header, ok, err := o.rebasedHeader(ctx, layer, e)
	if err != nil {
		return err
	}
	if !ok {
		return o.writeWhole(ctx, newHandle(layer, e.ordinal))
	}
	if e.PackedSize > segment.WholeMax {
		return o.writeLargeDelta(ctx, region, layer, e, header)
	}
	o.packed, err = region.ReadPacked(ctx, o.packed[:0], e.Record, object.ZeroID)
	if err != nil {
		return err
	}
	stored, payload, err := region.Parse(ctx, o.packed, e.Record, object.ZeroID)
	if err != nil {
		return err
	}
	header.Size = stored.Size
	return o.writeEntry(header, payload)
}

// rebasedHeader is deltaHeader for a delta of a segment.
func (o *packOutput) rebasedHeader(ctx context.Context, layer int, e *segmentEntry) (pack.EntryHeader, bool, error) {
	if segment.IsRefusedDelta(true, e.Size) {
		return pack.EntryHeader{}, false, nil
	}
	base := newHandle(layer, e.Base)
	if o.plan.request.OFSDelta && o.plan.send.has(base) && e.baseOffset < e.Offset && o.placedAt(base) == 0 &&
		e.baseOffset < o.passed[layer] {
		return o.behind(e.baseOffset + o.shiftOf(layer, e.baseOffset)), true, nil
	}
	id, err := o.plan.inv.segments[layer].ID(ctx, e.Base)
	if err != nil {
		return pack.EntryHeader{}, false, err
	}
	return o.deltaHeader(ctx, newHandle(layer, e.ordinal), id, e.Type)
}

// writeLargeDelta writes a delta that does not fit in memory with another header.
func (o *packOutput) writeLargeDelta(
	ctx context.Context, region segment.Region, layer int, e *segmentEntry, header pack.EntryHeader,
) error {
	stored, err := o.plan.inv.layers[layer].EntryOf(ctx, region, e.ordinal, e.Record)
	if err != nil {
		return err
	}
	header.Size = stored.ContentSize
	if err := o.writeHeader(header); err != nil {
		return err
	}
	return o.plan.inv.view.CopyPacked(ctx, o.stream, &stored)
}

// deltaHeader is deltaHeaderAt for a base by its ID, which the client may be unable to find.
func (o *packOutput) deltaHeader(
	ctx context.Context, h handle, base object.ID, t object.Type,
) (pack.EntryHeader, bool, error) {
	at, ok, err := o.plan.resolvable(ctx, base, t)
	if !ok || err != nil {
		return pack.EntryHeader{}, false, err
	}
	return o.deltaHeaderAt(ctx, h, base, at)
}

// deltaHeaderAt returns the header of the object of h as a delta against base, which lies at a
// handle and is resolvable, without its size; false if the client could not resolve it.
//
// A base in the pack has been written before. A base that a thin pack names by ID must not depend
// on an object that only the client has: git index-pack looks into its repository for a base that
// it cannot resolve at first, and fails when it then meets the same base in the pack.
func (o *packOutput) deltaHeaderAt(
	ctx context.Context, h handle, base object.ID, at handle,
) (pack.EntryHeader, bool, error) {
	header := pack.EntryHeader{Kind: pack.KindRefDelta, BaseID: base}
	if !o.plan.send.has(at) {
		o.dependent.add(h)
		return header, true, nil
	}
	offset, err := o.offsetOf(ctx, at)
	if err != nil || offset == 0 {
		return header, false, err
	}
	if o.plan.request.OFSDelta {
		return o.behind(offset), true, nil
	}
	return header, !o.dependent.has(at), nil
}

// behind returns the short header of a delta whose base was written at offset.
func (o *packOutput) behind(offset int64) pack.EntryHeader {
	return pack.EntryHeader{Kind: pack.KindOFSDelta, BaseDistance: o.stream.offset - offset}
}

// writeFound writes the object of h as the delta that was made for this pack.
func (o *packOutput) writeFound(ctx context.Context, h handle, found *foundDelta) error {
	header, ok, err := o.deltaHeader(ctx, h, found.base, found.kind)
	if err != nil {
		return err
	}
	if !ok {
		return o.writeWhole(ctx, h)
	}
	header.Size = int64(found.size)
	if o.packed, err = o.plan.deltas.packed(o.packed[:0], found); err != nil {
		return err
	}
	return o.writeEntry(header, o.packed)
}
