package packgen

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// The delta search is that of git repack: a window slides over the objects, sorted by type, name
// and age, and each object is tried against those before it in the window, the nearest first. Each
// object of the pack is written behind its base, wherever that lies. So any object can be the base
// of one that comes later in the window.
const (
	windowCount     = 10
	windowCountAnew = 50 // for a new search of every delta; between git repack and git gc --aggressive
	windowBytesMax  = 64 << 20
	windowDepthMax  = 50
	// searchSpoolBytes is the memory for the deltas that were found for one segment.
	searchSpoolBytes = 4 << 20
)

// target is an object to find a delta for.
type target struct {
	h     handle
	kind  object.Type
	fresh bool   // its stored form does not count
	size  uint32 // searchSizeMax at most
	below int32  // the longest chain of stored deltas that builds on it
}

// search makes deltas for objects that would lie whole in the segment.
func (r *Repack) search(ctx context.Context, paths []pathVersions) error {
	targets, err := r.targets(ctx, paths)
	if err != nil || len(targets) == 0 {
		return err
	}
	r.plan.deltas = newFoundDeltas(r.View().Store().Env().Files, searchSpoolBytes)
	s := windowSearch{repack: r, total: len(targets)}
	var workers sync.WaitGroup
	share := (len(targets) + r.options.Workers - 1) / r.options.Workers
	for start := 0; start < len(targets); start += share {
		part := targets[start:min(start+share, len(targets))]
		rescue.Go(&workers, func() error { return s.run(ctx, part) }, s.fail)
	}
	workers.Wait()
	if s.err != nil {
		return fmt.Errorf("search deltas: %w", s.err)
	}
	r.plan.progress.End(phaseCompressing, int64(s.total), int64(s.total))
	return nil
}

// targets returns the objects that may become a delta or a base, in the order of the window.
func (r *Repack) targets(ctx context.Context, paths []pathVersions) ([]target, error) {
	p := r.plan
	below, err := r.chainsBelow(ctx)
	if err != nil {
		return nil, err
	}
	var targets []target
	for _, path := range paths {
		for _, h := range path.sent {
			if err := r.plan.inv.pace.Rest(ctx); err != nil {
				return nil, err
			}
			t := target{h: h, kind: path.kind, fresh: true}
			size := int64(0)
			if h.layer() == p.inv.unpackedLayer() {
				info, err := p.inv.stat(ctx, h)
				if err != nil {
					return nil, err
				}
				size = info.Size
			} else {
				record, err := p.inv.segments[h.layer()].Record(ctx, h.number())
				if err != nil {
					return nil, err
				}
				t.fresh = r.fresh[h.layer()]
				if record.Blocks ||
					(!t.fresh && record.Base != segment.NoOrdinal && p.send.has(newHandle(h.layer(), record.Base))) {
					continue // block streams and deltas stay as they are
				}
				size, t.below = record.Size, below[h]
			}
			if size >= searchSizeMin && size <= searchSizeMax {
				t.size = uint32(size)
				targets = append(targets, t)
			}
		}
	}
	return targets, nil
}

// chainsBelow returns, for each whole entry with deltas on it, the length of the longest chain.
func (r *Repack) chainsBelow(ctx context.Context) (map[handle]int32, error) {
	longest := make(map[handle]int32)
	p := r.plan
	for layer, g := range p.inv.segments {
		if r.fresh[layer] {
			continue
		}
		records := segment.NewRecordReader(g)
		err := p.send.each(layer, func(ordinal uint32) error {
			if err := r.plan.inv.pace.Rest(ctx); err != nil {
				return err
			}
			length := int32(0)
			for at := ordinal; ; length++ {
				record, err := records.Record(ctx, at)
				if err != nil {
					return err
				}
				if record.Base == segment.NoOrdinal || !p.send.has(newHandle(layer, record.Base)) {
					if h := newHandle(layer, at); length > longest[h] {
						longest[h] = length
					}
					return nil
				}
				at = record.Base
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return longest, nil
}

// windowSearch is one search on several goroutines, each with a window of its own.
type windowSearch struct {
	repack *Repack
	total  int

	mu   sync.Mutex // guards the fields below, and the deltas of the plan
	done int
	err  error
}

func (s *windowSearch) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// step counts an object, with its delta if there is one. Errors: also that of another goroutine.
func (s *windowSearch) step(ctx context.Context, t *target, best *madeDelta) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if best != nil {
		if err := s.repack.plan.deltas.add(ctx, t.h, best); err != nil {
			return err
		}
	} else if t.fresh {
		s.repack.plan.undone.add(t.h)
	}
	s.done++
	s.repack.plan.progress.Step(phaseCompressing, int64(s.done), int64(s.total))
	return s.err
}

// windowEntry is an object in a window.
type windowEntry struct {
	target
	id    object.ID
	data  []byte
	index *delta.Index // made on demand
	depth int32        // of the chain of found deltas below it
}

func (s *windowSearch) run(ctx context.Context, targets []target) error {
	var window []*windowEntry // the latest last
	var spare [2][]byte
	size, count := int64(0), windowCount
	if s.repack.options.Anew {
		count = windowCountAnew
	}
	for i := range targets {
		if err := s.repack.plan.inv.pace.Rest(ctx); err != nil {
			return err
		}
		e, err := s.load(ctx, &targets[i])
		if err != nil {
			return err
		}
		if len(window) > 0 && window[0].kind != e.kind {
			window, size = nil, 0
		}
		best, err := s.try(ctx, window, e, &spare)
		if err != nil {
			return err
		}
		if err := s.step(ctx, &e.target, best); err != nil {
			return err
		}
		if e.depth+e.below >= windowDepthMax {
			continue
		}
		window = append(window, e)
		for size += int64(e.size); len(window) > count || (size > windowBytesMax && len(window) > 1); window = window[1:] {
			size -= int64(window[0].size)
		}
	}
	return nil
}

func (s *windowSearch) load(ctx context.Context, t *target) (*windowEntry, error) {
	kind, data, err := s.repack.plan.inv.read(ctx, t.h)
	if err != nil {
		return nil, err
	}
	if kind != t.kind {
		return nil, fmt.Errorf("%w: a %s instead of a %s", segment.ErrFormat, kind, t.kind)
	}
	id, err := s.repack.plan.inv.id(ctx, t.h)
	return &windowEntry{target: *t, id: id, data: data}, err
}

// try returns the smallest delta for e against the objects in the window, nil if none saves bytes.
// As in git, a longer chain must save more. It uses the memory of spare.
func (s *windowSearch) try(
	ctx context.Context, window []*windowEntry, e *windowEntry, spare *[2][]byte,
) (*madeDelta, error) {
	var program []byte
	var base *windowEntry
	limit := len(e.data)/2 - object.IDSize
	baseDepth := int32(0)
	for _, w := range slices.Backward(window) {
		if w.depth+1+e.below > windowDepthMax {
			continue
		}
		if program != nil && len(program) <= s.enough(len(e.data)) {
			break
		}
		most := limit * int(windowDepthMax-w.depth) / int(windowDepthMax-baseDepth)
		if most < 1 || len(e.data)-len(w.data) >= most || len(e.data) < len(w.data)/32 {
			continue
		}
		if w.index == nil {
			w.index = delta.NewIndex(w.data)
		}
		found, ok := w.index.Create(spare[0][:0], e.data, most)
		spare[0] = found
		if ok && (program == nil || len(found) < len(program) || w.depth < baseDepth) {
			program, base = found, w
			limit, baseDepth = len(found), w.depth
			spare[0], spare[1] = spare[1], spare[0]
		}
	}
	if program == nil {
		return nil, nil
	}
	best := makeDelta(base.id, e.kind, program)
	saves, err := s.saves(ctx, e, &best)
	if err != nil || !saves {
		return nil, err
	}
	e.depth = base.depth + 1
	return &best, nil
}

// enough returns a delta size below which the search ends: it is typical of the next version of a
// file.
func (s *windowSearch) enough(size int) int {
	if s.repack.options.Anew {
		return 0
	}
	return 32 + size/128
}

// saves reports whether a delta is smaller than the entry that would be packed instead.
func (s *windowSearch) saves(ctx context.Context, e *windowEntry, made *madeDelta) (bool, error) {
	if !e.fresh {
		return s.repack.plan.saves(ctx, e.h, &made.foundDelta)
	}
	const clearly = 8 // hardly any object is deflated to less than this part
	if len(made.packed) < len(e.data)/clearly {
		return true, nil
	}
	return len(made.packed)+deltaHeadSize < len(pack.Deflate(nil, e.data, generateLevel)), nil
}

// deltaHeadSize is about the size in bytes of the reference to a base in an entry.
const deltaHeadSize = 3
