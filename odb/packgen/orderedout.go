package packgen

import (
	"context"

	"packhorse/odb/fair"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// writeOrdered writes the objects in the order of the plan.
func (o *packOutput) writeOrdered(ctx context.Context) error {
	unpacked := o.plan.inv.unpackedLayer()
	ahead := 0
	for i, h := range o.plan.order {
		for ; ahead < len(o.plan.order) && ahead < i+deflateCountAhead; ahead++ {
			if next := o.plan.order[ahead]; next.layer() == unpacked {
				o.prepareUnpacked(ctx, next.number())
			}
		}
		if err := o.writeEarly(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// writeEarly writes an object of a segment before its turn in the order of the segment, and its
// base before it. Chains in a segment are at most as long as the limit for deltas, and so is the
// recursion.
func (o *packOutput) writeEarly(ctx context.Context, h handle) error {
	layer := h.layer()
	if layer == o.plan.inv.unpackedLayer() {
		return o.writeUnpacked(ctx, h.number())
	}
	if at, err := o.offsetOf(ctx, h); at != 0 || err != nil || o.placedAt(h) == isBusy {
		return err
	}
	if err := fair.Pause(ctx); err != nil {
		return err
	}
	entries := [1]segmentEntry{{ordinal: h.number()}}
	if err := o.fillIn(ctx, layer, entries[:]); err != nil {
		return err
	}
	e := &entries[0]
	o.place(h, isBusy)
	found, isFound := o.plan.deltas.get(h)
	isUndone := e.Base != segment.NoOrdinal && o.plan.isUndone(h)
	var err error
	switch {
	case isFound:
		err = o.writeBase(ctx, found.base)
	case e.Base != segment.NoOrdinal && !isUndone:
		err = o.writeStoredBase(ctx, layer, e)
	}
	if err != nil {
		return err
	}
	o.place(h, o.stream.offset)
	region := o.plan.inv.segments[layer].Region()
	switch {
	case isFound:
		return o.writeFound(ctx, h, &found)
	case isUndone:
		return o.writeWhole(ctx, h)
	case e.Base == segment.NoOrdinal:
		o.wrote(1)
		return region.CopyPacked(ctx, o.stream, e.Record, object.ZeroID, 0)
	default:
		return o.writeRebased(ctx, region, layer, e)
	}
}

// writeStoredBase writes the base of a stored delta.
func (o *packOutput) writeStoredBase(ctx context.Context, layer int, e *segmentEntry) error {
	if base := newHandle(layer, e.Base); o.plan.send.has(base) {
		return o.writeEarly(ctx, base)
	}
	id, err := o.plan.inv.segments[layer].ID(ctx, e.Base)
	if err != nil {
		return err
	}
	return o.writeBase(ctx, id)
}

// placedAt returns the offset of an entry of a segment that was written out of order: 0 if it was
// not, or isBusy.
func (o *packOutput) placedAt(h handle) int64 {
	if placed := o.placed[h.layer()]; placed != nil {
		return placed[h.number()]
	}
	return 0
}

func (o *packOutput) place(h handle, offset int64) {
	placed := &o.placed[h.layer()]
	if *placed == nil {
		*placed = make([]int64, o.plan.inv.segments[h.layer()].Count)
	}
	(*placed)[h.number()] = offset
}
