package packgen

import (
	"context"

	"packhorse/odb/revwalk"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// wholeSegments finds the reached objects from segment summaries alone, without opening an object
// of a segment.
//
// Objects name only older ones. So a tip, an object that no other object of its segment names,
// leads to all that lies below it. If all tips of a segment are reached, the whole segment is, and
// so are its external references.
type wholeSegments struct {
	reaching  *reaching
	summaries []segment.Summary
	tips      map[object.ID][]int // segments by their tips that are not reached yet
	left      []int               // of each segment: the number of such tips
	whole     []bool
	touched   []bool          // an object of the segment is reached
	doubtful  []object.ID     // reached, but found only as a thin-pack base
	met       revwalk.IDTable // reached IDs: successive trees name mostly the same
	stack     []object.ID     // of met, not visited yet
}

// findWhole answers requests that reduce to whole segments, and reports whether this one did.
func (r *reaching) findWhole(ctx context.Context, request *Request) (bool, error) {
	if len(request.Haves)+len(request.ClientShallow)+len(request.Shallow) > 0 || r.filter.byPlace() {
		return false, nil
	}
	w := &wholeSegments{
		reaching: r,
		tips:     make(map[object.ID][]int),
		left:     make([]int, len(r.inv.segments)),
		whole:    make([]bool, len(r.inv.segments)),
		touched:  make([]bool, len(r.inv.segments)),
	}
	for _, want := range request.Wants {
		w.meet(want)
	}
	if ok, err := w.prepare(ctx); !ok || err != nil {
		return false, err
	}
	for len(w.stack) > 0 {
		id := w.stack[len(w.stack)-1]
		w.stack = w.stack[:len(w.stack)-1]
		if err := w.reach(ctx, id); err != nil {
			return false, err
		}
	}
	if ok, err := w.covered(ctx); !ok || err != nil {
		r.send, r.seen = r.inv.newSet(), r.inv.newSet()
		return false, err
	}
	return true, w.take(ctx, request)
}

// prepare reads the segment summaries; false if a segment has none.
func (w *wholeSegments) prepare(ctx context.Context) (bool, error) {
	for i, g := range w.reaching.inv.segments {
		s, ok, err := g.Summary(ctx)
		if segment.Unreadable(err) {
			return false, nil // a walk needs none
		}
		if !ok || err != nil {
			return false, err
		}
		w.summaries = append(w.summaries, s)
		w.left[i] = len(s.Tips)
		for _, tip := range s.Tips {
			w.tips[tip] = append(w.tips[tip], i)
		}
	}
	return true, nil
}

// meet puts a reached object on the stack, once.
func (w *wholeSegments) meet(id object.ID) {
	if _, fresh := w.met.Number(id); fresh {
		w.stack = append(w.stack, id)
	}
}

// reach processes a reached object.
func (w *wholeSegments) reach(ctx context.Context, id object.ID) error {
	r := w.reaching
	h, at, err := r.inv.find(ctx, id)
	if err != nil {
		return err
	}
	for _, segment := range w.tips[id] {
		if w.left[segment]--; w.left[segment] == 0 {
			w.whole[segment] = true
			for _, external := range w.summaries[segment].External {
				w.meet(external)
			}
		}
	}
	delete(w.tips, id)
	if layer := h.layer(); layer < len(r.inv.segments) {
		w.touched[layer] = true
		if w.summaries[layer].HasThinBase(id) {
			w.doubtful = append(w.doubtful, id)
		}
		return nil
	}
	if !r.seen.add(h) {
		return nil
	}
	r.put(h)
	info, err := at.Stat(ctx)
	if err != nil || info.Type == object.TypeBlob {
		return err
	}
	t, data, err := r.inv.view.ReadAt(ctx, at)
	if err != nil {
		return err
	}
	return object.Links(t, data, func(id object.ID, _ object.Type) error {
		w.meet(id)
		return nil
	})
}

// covered reports whether every segment with a reached object is reached as a whole.
func (w *wholeSegments) covered(ctx context.Context) (bool, error) {
	for i, touched := range w.touched {
		if touched && !w.whole[i] {
			return false, nil
		}
	}
	for _, id := range w.doubtful {
		if ok, err := w.holds(ctx, id); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// holds reports whether a whole segment has an object as more than a thin-pack base.
func (w *wholeSegments) holds(ctx context.Context, id object.ID) (bool, error) {
	for i, g := range w.reaching.inv.segments {
		if !w.whole[i] || w.summaries[i].HasThinBase(id) {
			continue
		}
		if _, ok, err := g.Lookup(ctx, id); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// take adds the whole segments, each object once, as far as the filter lets it.
func (w *wholeSegments) take(ctx context.Context, request *Request) error {
	r := w.reaching
	for i := range r.inv.segments {
		if !w.whole[i] {
			continue
		}
		r.send.addAll(i)
		if err := w.removeThinBases(ctx, i); err != nil {
			return err
		}
		for newer := range i {
			if w.whole[newer] {
				if err := r.send.removeDuplicates(ctx, newer, i); err != nil {
					return err
				}
			}
		}
	}
	return r.applyFilter(ctx, request.Wants)
}

// removeThinBases removes the thin-pack bases of a segment, unless they are reached otherwise.
func (w *wholeSegments) removeThinBases(ctx context.Context, segment int) error {
	for _, id := range w.summaries[segment].ThinBases {
		held, err := w.holds(ctx, id)
		if err != nil {
			return err
		}
		if held {
			continue
		}
		ordinal, ok, err := w.reaching.inv.segments[segment].Lookup(ctx, id)
		if err != nil {
			return err
		}
		if ok {
			w.reaching.send.remove(newHandle(segment, ordinal))
		}
	}
	return nil
}

// removeDuplicates removes the objects of the older segment that a newer one holds, too.
func (s *objectSet) removeDuplicates(ctx context.Context, newer, older int) error {
	return s.inv.eachDuplicate(ctx, newer, older, func(inNewer, inOlder handle) {
		if s.has(inNewer) {
			s.remove(inOlder)
		}
	})
}

// addDuplicates adds, for each object in the set that lies in both segments, the other handle.
func (s *objectSet) addDuplicates(ctx context.Context, one, other int) error {
	return s.inv.eachDuplicate(ctx, one, other, func(inOne, inOther handle) {
		if s.has(inOne) {
			s.add(inOther)
		}
	})
}

// eachDuplicate calls visit with both handles of every duplicate in two segments.
func (inv *inventory) eachDuplicate(ctx context.Context, a, b int, visit func(inA, inB handle)) error {
	if inv.segments[a].Count <= inv.segments[b].Count {
		return eachDuplicate(ctx, inv.segments[a], inv.segments[b], func(inA, inB uint32) {
			visit(newHandle(a, inA), newHandle(b, inB))
		})
	}
	return eachDuplicate(ctx, inv.segments[b], inv.segments[a], func(inB, inA uint32) {
		visit(newHandle(a, inA), newHandle(b, inB))
	})
}

// eachDuplicate calls visit with the ordinals of every object of a that b holds, too.
func eachDuplicate(ctx context.Context, a, b segment.Segment, visit func(inA, inB uint32)) error {
	const batch = 4096
	ids := make([]object.ID, 0, min(batch, a.Count))
	for first := 0; first < a.Count; first += batch {
		ids = ids[:0]
		for ordinal := first; ordinal < min(first+batch, a.Count); ordinal++ {
			id, err := a.ID(ctx, uint32(ordinal))
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		err := b.LookupMany(ctx, ids, func(index int, ordinal uint32) error {
			visit(uint32(first+index), ordinal)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
