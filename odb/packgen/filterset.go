package packgen

import (
	"context"

	"packhorse/odb/revwalk"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// applyFilter removes from the set to send the objects that a filter without depth leaves out, and
// adds the wants again.
func (r *reaching) applyFilter(ctx context.Context, wants []object.ID) error {
	if r.filter.IsZero() {
		return nil
	}
	for layer := range r.inv.segments {
		if err := r.filterSegment(ctx, layer); err != nil {
			return err
		}
	}
	if err := r.filterUnpacked(ctx); err != nil {
		return err
	}
	for _, want := range wants {
		target, _, tags, err := revwalk.Peel(ctx, r.inv.view, want)
		if err != nil {
			return err
		}
		for _, id := range append(tags, target) {
			h, err := r.inv.locate(ctx, id)
			if err != nil {
				return err
			}
			r.send.add(h)
		}
	}
	return nil
}

// filterSegment filters the objects of one segment: a type as a whole if bitmaps cover the types,
// other objects by their records.
func (r *reaching) filterSegment(ctx context.Context, layer int) error {
	if len(r.send.words[layer]) == 0 {
		return nil
	}
	known := true
	for t := object.TypeCommit; t <= object.TypeTag && known; t++ {
		if r.filter.keepsType(t) {
			continue
		}
		words, err := r.inv.bitmaps.ofType(ctx, layer, t)
		if err != nil {
			return err
		}
		known = words != nil
		for i := range min(len(words), len(r.send.words[layer])) {
			r.send.words[layer][i] &^= words[i]
		}
	}
	if known && (!r.filter.blobLimited || !r.filter.keepsType(object.TypeBlob)) {
		return nil
	}
	records := segment.NewRecordReader(r.inv.segments[layer])
	return r.send.each(layer, func(ordinal uint32) error {
		t, size, _, err := records.Info(ctx, ordinal)
		if err == nil && !r.filter.keeps(t, size) {
			r.send.remove(newHandle(layer, ordinal))
		}
		return err
	})
}

// filterUnpacked filters the unpacked objects.
func (r *reaching) filterUnpacked(ctx context.Context) error {
	layer := r.inv.unpackedLayer()
	return r.send.each(layer, func(number uint32) error {
		info, err := r.inv.stat(ctx, newHandle(layer, number))
		if err == nil && !r.filter.keeps(info.Type, info.Size) {
			r.send.remove(newHandle(layer, number))
		}
		return err
	})
}
