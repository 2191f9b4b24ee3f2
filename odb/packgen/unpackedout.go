package packgen

import (
	"context"
	"errors"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/inorder"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// isBusy marks an object that is being written, behind its base.
const isBusy = -1

// unpackedEntry is an unpacked object that was prepared ahead: its value is read, and deflated if
// it is not sent as it is stored.
type unpackedEntry struct {
	entry  odb.StoredEntry
	base   handle // of a delta that the client can take
	undone bool   // the entry is a delta that the client cannot take: the object is sent whole
	packed []byte // nil if the stored bytes are sent, and for an undone delta that is deflated at its turn
}

// prepare prepares an unpacked object.
func (p *PackPlan) prepare(ctx context.Context, number uint32) (u unpackedEntry, err error) {
	if err := p.inv.pace.Rest(ctx); err != nil {
		return u, err
	}
	if u.entry, err = p.inv.unpackedEntry(ctx, number); err != nil {
		return u, err
	}
	h, e := newHandle(p.inv.unpackedLayer(), number), &u.entry
	if e.Delta() {
		base, ok, err := p.takenBase(ctx, h, e)
		if err != nil {
			return u, err
		}
		u.base, u.undone = base, !ok
	}
	if u.undone {
		if e.Size <= deflatedMax { // many larger ones might take much memory
			u.packed, err = p.deflateSmall(ctx, h)
		}
		return u, err
	}
	if e.Encoding == odb.EncodingZlib {
		return u, nil
	}
	if e.Type == object.TypeTree && !e.Delta() && e.Size <= deflatedMax {
		u.packed, err = p.deflateSmall(ctx, h) // other clones send it, too
		return u, err
	}
	content, err := e.Content(ctx)
	if err != nil {
		return u, err
	}
	if e.Delta() {
		u.packed = deflateBytes(nil, content)
	} else {
		u.packed = deflateContent(nil, e.Type, content)
	}
	return u, nil
}

// takenBase returns the base of an unpacked object that is stored as a delta; false if the client
// cannot take the delta.
func (p *PackPlan) takenBase(ctx context.Context, h handle, e *odb.StoredEntry) (handle, bool, error) {
	if segment.IsRefusedDelta(true, e.Size) || p.isUndone(h) {
		return 0, false, nil
	}
	return p.resolvable(ctx, e.Base, e.Type)
}

// writeAllUnpacked writes the unpacked objects.
func (o *packOutput) writeAllUnpacked(ctx context.Context) error {
	numbers := make([]uint32, 0, o.plan.send.count(o.plan.inv.unpackedLayer()))
	err := o.plan.send.each(o.plan.inv.unpackedLayer(), func(number uint32) error {
		numbers = append(numbers, number)
		return nil
	})
	if err != nil {
		return err
	}
	ahead := 0
	for i, number := range numbers {
		for ; ahead < len(numbers) && ahead < i+deflateCountAhead; ahead++ {
			o.prepareUnpacked(ctx, numbers[ahead])
		}
		if err := o.writeUnpacked(ctx, number); err != nil {
			return err
		}
	}
	return nil
}

// prepareUnpacked queues the preparation of an object, unless it is written or has a found delta.
func (o *packOutput) prepareUnpacked(ctx context.Context, number uint32) {
	if _, found := o.plan.deltas.get(newHandle(o.plan.inv.unpackedLayer(), number)); found || o.unpacked[number] != 0 {
		return
	}
	if o.ready == nil {
		o.ready = make(map[uint32]*inorder.Task[uint32, unpackedEntry])
	}
	o.ready[number] = o.preparers.Add(ctx, number)
}

// takeUnpacked returns a prepared object, or prepares it now.
func (o *packOutput) takeUnpacked(ctx context.Context, number uint32) (*unpackedEntry, error) {
	if task, ok := o.ready[number]; ok {
		delete(o.ready, number)
		return task.Wait(ctx)
	}
	u, err := o.plan.prepare(ctx, number)
	return &u, err
}

// writeUnpacked writes an unpacked object, behind the base of its delta.
func (o *packOutput) writeUnpacked(ctx context.Context, number uint32) error {
	if o.unpacked[number] != 0 {
		return nil
	}
	if err := fair.Pause(ctx); err != nil {
		return err
	}
	o.unpacked[number] = isBusy
	h := newHandle(o.plan.inv.unpackedLayer(), number)
	if found, ok := o.plan.deltas.get(h); ok {
		if err := o.writeBase(ctx, found.base); err != nil {
			return err
		}
		o.unpacked[number] = o.stream.offset
		return o.writeFound(ctx, h, &found)
	}
	prepared, err := o.takeUnpacked(ctx, number)
	if err != nil {
		return err
	}
	e := &prepared.entry
	header := pack.EntryHeader{Kind: pack.EntryKind(e.Type), Size: e.Size}
	if prepared.undone {
		o.unpacked[number] = o.stream.offset
		if prepared.packed == nil {
			return o.writeWhole(ctx, h)
		}
		return o.writeEntry(header, prepared.packed)
	}
	if e.Delta() {
		if err := o.writeBaseAt(ctx, prepared.base); err != nil {
			return err
		}
		rebased, ok, err := o.deltaHeaderAt(ctx, h, e.Base, prepared.base)
		if err != nil {
			return err
		}
		if !ok {
			o.unpacked[number] = o.stream.offset
			return o.writeWhole(ctx, h)
		}
		header = rebased
		header.Size = e.ContentSize
	}
	o.unpacked[number] = o.stream.offset
	if e.Encoding != odb.EncodingZlib {
		return o.writeEntry(header, prepared.packed)
	}
	if err := o.writeHeader(header); err != nil {
		return err
	}
	return o.plan.inv.view.CopyPacked(ctx, o.stream, e)
}

// writeBase is writeBaseAt for a base by its ID, which counts as absent if it is not readable.
func (o *packOutput) writeBase(ctx context.Context, id object.ID) error {
	base, err := o.plan.inv.locate(ctx, id)
	if errors.Is(err, odb.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return o.writeBaseAt(ctx, base)
}

// writeBaseAt writes the base of a delta before its turn, if it is sent. In a pack with an order it
// does so for every base, otherwise for bases that are unpacked as the delta is. A base that is
// being written is part of a cycle, which two writers cause who store each other's versions at
// once; it counts as absent.
func (o *packOutput) writeBaseAt(ctx context.Context, base handle) error {
	if !o.plan.send.has(base) {
		return nil
	}
	if base.layer() == o.plan.inv.unpackedLayer() {
		return o.writeUnpacked(ctx, base.number())
	}
	if o.plan.order == nil {
		return nil
	}
	return o.writeEarly(ctx, base)
}
