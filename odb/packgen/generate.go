package packgen

import (
	"context"
	"fmt"
	"io"

	"packhorse/odb/fair"
	"packhorse/odb/inorder"
	"packhorse/odb/progress"
	"packhorse/odb/segment"
	"packhorse/pack"
)

// WriteTo writes the pack to w and returns its size in bytes. It may be called more than once. It
// holds a few buffers, the deltas that were made for this pack, the places of runs of entries (16
// bytes each), and up to 16 MiB of objects that two goroutines deflate ahead. report may be nil.
//
// WriteTo copies entries as they are stored, runs of neighbours in one copy. It verifies each
// before it writes it, those over 1 MiB while it writes them. A stored delta stays a delta if its
// base is in the pack, or in a thin pack if the client is known to have the base; otherwise the
// whole object is sent. A delta is written behind its base, or its base lies in the same segment,
// so chains end.
//
// After an error, [odb.ErrCorrupt] among them, the output must not be used: it has no valid
// trailer.
func (p *PackPlan) WriteTo(ctx context.Context, w io.Writer, report progress.Func) (int64, error) {
	known, err := p.storedTrailer(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	o := &packOutput{
		plan:     p,
		stream:   newPackStream(ctx, w, known),
		shifts:   make([][]shift, len(p.inv.segments)),
		records:  make([]*segment.RecordReader, len(p.inv.segments)),
		unpacked: make([]int64, p.inv.unpackedCount()),
		passed:   make([]int64, len(p.inv.segments)),
		placed:   make([][]int64, len(p.inv.segments)),

		dependent: p.inv.newSet(),
	}
	for layer, g := range p.inv.segments {
		o.records[layer] = segment.NewRecordReader(g)
	}
	o.progress.Report = report
	o.deflaters = inorder.Start(ctx, aheadOptions, p.deflate)
	defer o.deflaters.Stop()
	o.preparers = inorder.Start(ctx, aheadOptions, p.prepare)
	defer o.preparers.Stop()
	defer cancel()
	defer func() { _ = o.stream.stop() }() // its error has been returned, or an earlier one
	err = fair.Do(ctx, func(ctx context.Context) error {
		o.stream.ctx, o.progress.Turn = ctx, ctx
		return o.write(ctx)
	})
	return o.stream.offset, err
}

// storedTrailer returns the trailer of the only segment of the pack if it is sent from end to end:
// then the pack is its packfile. In a thin pack, deltas may name their bases otherwise than in the
// segment, and a delta that git refuses is replaced by the whole object.
func (p *PackPlan) storedTrailer(ctx context.Context) ([]byte, error) {
	for layer, g := range p.inv.segments {
		if p.count != g.Count || !p.isWhole(layer) || !p.request.OFSDelta || p.request.Thin {
			continue
		}
		header, trailer := make([]byte, pack.HeaderSize), make([]byte, pack.TrailerSize)
		if refused, err := g.HasRefusedDelta(ctx); refused || err != nil {
			return nil, err
		}
		if err := segment.ReadFull(ctx, g.Handle, header, 0); err != nil {
			return nil, g.Damaged(err)
		}
		if err := segment.ReadFull(ctx, g.Handle, trailer, g.DataSize-pack.TrailerSize); err != nil {
			return nil, g.Damaged(err)
		}
		if h, err := pack.ParseHeader(header); err == nil && h.Version == 2 && int(h.Count) == g.Count {
			return trailer, nil
		}
	}
	return nil, nil
}

// isWhole reports whether every entry of a segment is sent as it is stored, if the client accepts
// the short form of deltas.
func (p *PackPlan) isWhole(layer int) bool {
	return p.send.count(layer) == p.inv.segments[layer].Count && p.deltas.count() == 0 && p.order == nil
}

// packOutput is the state of one [PackPlan.WriteTo].
type packOutput struct {
	plan      *PackPlan
	stream    *packStream
	deflaters *inorder.Workers[handle, deflated]
	preparers *inorder.Workers[uint32, unpackedEntry]
	records   []*segment.RecordReader // of each segment
	shifts    [][]shift               // of each segment: the places of its entries
	run       entryRun
	passed    []int64   // of each segment: the offset up to which its entries were written
	placed    [][]int64 // of each segment, by ordinal: the offsets of entries written out of order; see unpacked
	unpacked  []int64   // the offsets of unpacked objects; 0: not written, isBusy: being written
	ready     map[uint32]*inorder.Task[uint32, unpackedEntry]
	dependent objectSet // deltas whose chain ends at an object that only the client has
	packed    []byte    // scratch
	header    []byte    // scratch
	written   int64

	progress progress.Meter
}

func (o *packOutput) write(ctx context.Context) error {
	p := o.plan
	header := pack.Header{Version: 2, Count: uint32(p.count)}.Append(nil)
	if _, err := o.stream.Write(header); err != nil {
		return err
	}
	if err := o.writeOrdered(ctx); err != nil {
		return err
	}
	for layer := range p.inv.segments {
		if err := o.writeSegment(ctx, layer); err != nil {
			return err
		}
	}
	if p.order == nil {
		if err := o.writeAllUnpacked(ctx); err != nil {
			return err
		}
	}
	if o.written != int64(p.count) {
		return fmt.Errorf("odb: %d objects in a pack of %d", o.written, p.count)
	}
	if err := o.stream.end(); err != nil {
		return err
	}
	o.progress.End(phaseWriting, o.written, o.written)
	return nil
}

// wrote counts written entries.
func (o *packOutput) wrote(count int64) {
	before := o.written / progress.Steps
	o.written += count
	if o.written/progress.Steps > before {
		o.progress.Step(phaseWriting, o.written/progress.Steps*progress.Steps, int64(o.plan.count))
	}
}

// writeEntry writes an entry from its header and its zlib stream.
func (o *packOutput) writeEntry(header pack.EntryHeader, payload []byte) error {
	if err := o.writeHeader(header); err != nil {
		return err
	}
	_, err := o.stream.Write(payload)
	return err
}

// writeHeader begins an entry.
func (o *packOutput) writeHeader(header pack.EntryHeader) error {
	o.wrote(1)
	o.header = header.Append(o.header[:0])
	_, err := o.stream.Write(o.header)
	return err
}
