package packgen

import (
	"context"
	"errors"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/object"
)

// isBusy marks an object that is being written, behind its base.
const isBusy = -1

// looseEntry is an unpacked object that is prepared ahead: its value is read, and its content is
// deflated if it is stored in another form. Its fields are valid once done is closed.
type looseEntry struct {
	number uint32
	entry  odb.StoredEntry
	packed []byte
	err    error
	done   chan struct{}
}

func (j *looseEntry) run(ctx context.Context, inv *inventory) (err error) {
	if j.entry, err = inv.looseEntry(ctx, j.number); err != nil || j.entry.Encoding == odb.EncodingZlib {
		return err
	}
	content, err := j.entry.Content(ctx)
	if err == nil {
		j.packed = pack.Deflate(nil, content, generateLevel)
	}
	return err
}

func (j *looseEntry) end(err error) {
	j.err = err
	close(j.done)
}

// writeAllLoose writes the unpacked objects.
func (o *packOutput) writeAllLoose(ctx context.Context) error {
	numbers := make([]uint32, 0, o.plan.send.count(o.plan.inv.looseLayer()))
	err := o.plan.send.each(o.plan.inv.looseLayer(), func(number uint32) error {
		numbers = append(numbers, number)
		return nil
	})
	if err != nil {
		return err
	}
	ahead := 0
	for i, number := range numbers {
		for ; ahead < len(numbers) && ahead < i+deflateCountAhead; ahead++ {
			o.prepareLoose(ctx, numbers[ahead])
		}
		if err := o.writeLoose(ctx, number); err != nil {
			return err
		}
	}
	return nil
}

// prepareLoose queues the preparation of an object, unless it is written or has a found delta.
func (o *packOutput) prepareLoose(ctx context.Context, number uint32) {
	if _, found := o.plan.deltas.get(newHandle(o.plan.inv.looseLayer(), number)); found || o.loose[number] != 0 {
		return
	}
	job := &looseEntry{number: number, done: make(chan struct{})}
	if o.ready == nil {
		o.ready = make(map[uint32]*looseEntry)
	}
	o.ready[number] = job
	o.deflaters.add(ctx, job)
}

// takeLoose returns a prepared object, or prepares it now.
func (o *packOutput) takeLoose(ctx context.Context, number uint32) (*looseEntry, error) {
	job, ok := o.ready[number]
	if ok {
		delete(o.ready, number)
		if err := restUntil(ctx, job.done); err != nil {
			return nil, err
		}
	} else {
		job = &looseEntry{number: number, done: make(chan struct{})}
		job.end(job.run(ctx, o.plan.inv))
	}
	return job, job.err
}

// writeLoose writes an unpacked object, behind the base of its delta.
func (o *packOutput) writeLoose(ctx context.Context, number uint32) error {
	if o.loose[number] != 0 {
		return nil
	}
	if err := fair.Pause(ctx); err != nil {
		return err
	}
	o.loose[number] = isBusy
	h := newHandle(o.plan.inv.looseLayer(), number)
	if found, ok := o.plan.deltas.get(h); ok {
		if err := o.writeBase(ctx, found.base); err != nil {
			return err
		}
		o.loose[number] = o.stream.offset
		return o.writeFound(ctx, h, &found)
	}
	job, err := o.takeLoose(ctx, number)
	if err != nil {
		return err
	}
	e := &job.entry
	header := pack.EntryHeader{Kind: pack.EntryKind(e.Type), Size: e.Size}
	if segment.IsRefusedDelta(e.Delta(), e.Size) || e.Delta() && o.plan.isUndone(h) {
		o.loose[number] = o.stream.offset
		return o.writeWhole(ctx, h)
	}
	if e.Delta() {
		if err := o.writeBase(ctx, e.Base); err != nil {
			return err
		}
		rebased, ok, err := o.deltaHeader(ctx, h, e.Base, e.Type)
		if err != nil {
			return err
		}
		if !ok {
			o.loose[number] = o.stream.offset
			return o.writeWhole(ctx, h)
		}
		header = rebased
		header.Size = e.ContentSize
	}
	o.loose[number] = o.stream.offset
	if e.Encoding != odb.EncodingZlib {
		return o.writeEntry(header, job.packed)
	}
	if err := o.writeHeader(header); err != nil {
		return err
	}
	return o.plan.inv.view.CopyPacked(ctx, o.stream, e)
}

// writeBase writes the base of a delta before its turn, if it is sent. In a pack with an order it
// does so for every base, otherwise for bases that are unpacked as the delta is. A base that is
// being written is part of a cycle, which two writers cause who store each other's versions at
// once; it counts as absent.
func (o *packOutput) writeBase(ctx context.Context, id object.ID) error {
	base, err := o.plan.inv.locate(ctx, id)
	if errors.Is(err, odb.ErrNotFound) {
		return nil
	}
	if err != nil || !o.plan.send.has(base) {
		return err
	}
	if base.layer() == o.plan.inv.looseLayer() {
		return o.writeLoose(ctx, base.number())
	}
	if o.plan.order == nil {
		return nil
	}
	return o.writeEarly(ctx, base)
}
