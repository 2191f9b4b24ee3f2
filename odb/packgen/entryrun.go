package packgen

import (
	"context"
	"fmt"
	"hash/crc32"
	"sort"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// shift is the distance that the entries of a segment moved, from a stored offset on up to that of
// the next shift. next shift.
type shift struct{ from, by int64 }

// moved records that the next entry of a segment, stored at from, goes to the end of the pack.
func (o *packOutput) moved(layer int, from int64) {
	by := o.stream.offset + o.run.size - from
	shifts := o.shifts[layer]
	if len(shifts) == 0 || shifts[len(shifts)-1].by != by {
		o.shifts[layer] = append(shifts, shift{from, by})
	}
}

// shiftOf returns the distance that a written entry moved.
func (o *packOutput) shiftOf(layer int, offset int64) int64 {
	shifts := o.shifts[layer]
	if last := len(shifts) - 1; last >= 0 && shifts[last].from <= offset {
		return shifts[last].by
	}
	i := sort.Search(len(shifts), func(i int) bool { return shifts[i].from > offset })
	return shifts[max(i-1, 0)].by
}

// offsetOf returns the offset in the pack of an object that is sent, 0 before it is written.
func (o *packOutput) offsetOf(ctx context.Context, h handle) (int64, error) {
	layer := h.layer()
	if layer == o.plan.inv.unpackedLayer() {
		return max(o.unpacked[h.number()], 0), nil
	}
	if at := o.placedAt(h); at != 0 {
		return max(at, 0), nil
	}
	r, err := o.records[layer].Record(ctx, h.number())
	if err != nil {
		return 0, err
	}
	shifts := o.shifts[layer]
	if len(shifts) == 0 || r.Offset < shifts[0].from || r.Offset >= o.passed[layer] {
		return 0, nil
	}
	return r.Offset + o.shiftOf(layer, r.Offset), nil
}

// entryRun is a run of adjacent entries of a segment that are copied together.
type entryRun struct {
	region  segment.Region
	start   int64
	size    int64 // at most streamBufferSize
	entries []runEntry
}

type runEntry struct {
	size  int64
	crc32 uint32
}

// addToRun adds an entry to the run, or begins a new run with it.
func (o *packOutput) addToRun(ctx context.Context, layer int, e *segmentEntry) error {
	r := &o.run
	if r.size+e.PackedSize > streamBufferSize || r.start+r.size != e.Offset {
		if err := o.copyRun(ctx); err != nil {
			return err
		}
	}
	o.moved(layer, e.Offset)
	if len(r.entries) == 0 {
		r.start = e.Offset
	}
	r.entries = append(r.entries, runEntry{e.PackedSize, e.CRC32})
	r.size += e.PackedSize
	return nil
}

// copyRun verifies and writes each entry of the run.
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
	offset := r.start // of the entry that is checked
	err = segment.ReadChecked(ctx, r.region.Data, space, r.start, func(rest []byte) error {
		offset = r.start
		for _, e := range r.entries {
			if crc32.ChecksumIEEE(rest[:e.size]) != e.crc32 {
				return fmt.Errorf("%w: entry at %d fails its CRC-32", segment.ErrFormat, offset)
			}
			rest = rest[e.size:]
			offset += e.size
		}
		return nil
	})
	if err != nil {
		return r.region.Damaged(ctx, object.ZeroID, offset, err)
	}
	o.stream.commit(len(space))
	o.wrote(int64(len(r.entries)))
	r.size, r.entries = 0, r.entries[:0]
	return nil
}
