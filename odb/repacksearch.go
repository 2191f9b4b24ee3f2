package odb

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// The search of deltas is that of git repack: a window of objects, sorted by type, name and age, slides along, and each object is tried
// against those before it in the window.
const (
	windowCount     = 10
	windowCountAnew = 50 // when every delta is searched anew, in between what git repack and git gc --aggressive look at
	windowBytesMax  = 64 * mebibyte
	windowDepthMax  = 50
	// repackDeltaBytesMax bounds the deltas that are held for one segment; what is left stays as it is stored.
	repackDeltaBytesMax = 96 * mebibyte
)

// target is an object that a delta is searched for. Where it will lie decides against which others that can be.
type target struct {
	h      handle
	kind   object.Type
	size   int64
	offset int64 // in its segment
	below  int   // the longest chain of stored deltas that builds on it
}

// isBefore reports whether an object is written before another, which can then be a delta against it. What comes from hot layers is written
// first, each object behind its base.
func (t *target) isBefore(other *target, loose int) bool {
	switch a, b := t.h.layer(), other.h.layer(); {
	case a == loose:
		return true
	case b == loose:
		return false
	case a != b:
		return a < b
	default:
		return t.offset < other.offset
	}
}

// search makes deltas for what would lie whole in the segment.
func (r *repack) search(ctx context.Context, paths []pathVersions) error {
	targets, err := r.targets(ctx, paths)
	if err != nil || len(targets) == 0 {
		return err
	}
	s := windowSearch{repack: r, total: len(targets), found: make(map[handle]foundDelta)}
	var workers sync.WaitGroup
	share := (len(targets) + r.options.Workers - 1) / r.options.Workers
	for start := 0; start < len(targets); start += share {
		part := targets[start:min(start+share, len(targets))]
		workers.Go(func() {
			if err := s.run(ctx, part); err != nil {
				s.fail(err)
			}
		})
	}
	workers.Wait()
	if s.err != nil {
		return fmt.Errorf("search deltas: %w", s.err)
	}
	r.plan.deltas = s.found
	r.plan.progress.end(phaseCompressing, int64(s.total), int64(s.total))
	return nil
}

// targets returns what may become a delta or the base of one, in the order in which the window passes.
func (r *repack) targets(ctx context.Context, paths []pathVersions) ([]target, error) {
	p := r.plan
	below, err := r.chainsBelow(ctx)
	if err != nil {
		return nil, err
	}
	var targets []target
	for _, path := range paths {
		for _, h := range path.sent {
			t := target{h: h, kind: path.kind}
			if h.layer() == p.inv.looseLayer() {
				info, err := p.inv.stat(ctx, h)
				if err != nil {
					return nil, err
				}
				t.size = info.Size
			} else {
				record, err := p.inv.segments[h.layer()].record(ctx, h.number())
				if err != nil {
					return nil, err
				}
				if record.Blocks || (record.Base != noOrdinal && p.send.has(newHandle(h.layer(), record.Base)) && !r.options.Anew) {
					continue // a block stream stays one, and what is a delta stays that
				}
				t.size, t.offset, t.below = record.Size, record.Offset, below[h]
			}
			if t.size >= searchSizeMin && t.size <= searchSizeMax {
				targets = append(targets, t)
			}
		}
	}
	return targets, nil
}

// chainsBelow returns the length of the longest chain of deltas on each whole entry that has any.
func (r *repack) chainsBelow(ctx context.Context) (map[handle]int, error) {
	longest := make(map[handle]int)
	if r.options.Anew {
		return longest, nil
	}
	p := r.plan
	for layer, g := range p.inv.segments {
		records := newRecordReader(g)
		err := p.send.each(layer, func(ordinal uint32) error {
			length := 0
			for at := ordinal; ; length++ {
				record, err := records.record(ctx, at)
				if err != nil {
					return err
				}
				if record.Base == noOrdinal || !p.send.has(newHandle(layer, record.Base)) {
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

// windowSearch is one search on some goroutines, each with a window of its own.
type windowSearch struct {
	repack *repack
	total  int

	mu    sync.Mutex // guards the fields below
	found map[handle]foundDelta
	bytes int64
	done  int
	err   error
}

func (s *windowSearch) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// step counts an object, with its delta if there is one, and reports whether the search goes on.
func (s *windowSearch) step(h handle, best *foundDelta) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if best != nil {
		s.found[h] = *best
		s.bytes += int64(len(best.packed))
	}
	s.done++
	s.repack.plan.progress.step(phaseCompressing, int64(s.done), int64(s.total))
	return s.err == nil && s.bytes <= repackDeltaBytesMax
}

// windowEntry is an object in a window.
type windowEntry struct {
	target
	id    object.ID
	data  []byte
	index *delta.Index // made when it is first needed
	depth int          // of the chain of found deltas below it
}

func (s *windowSearch) run(ctx context.Context, targets []target) error {
	var window []*windowEntry // the latest last
	size, count := int64(0), windowCount
	if s.repack.options.Anew {
		count = windowCountAnew
	}
	for i := range targets {
		if err := s.repack.pace.rest(ctx); err != nil {
			return err
		}
		e, err := s.load(ctx, &targets[i])
		if err != nil {
			return err
		}
		if len(window) > 0 && window[0].kind != e.kind {
			window, size = nil, 0
		}
		best, err := s.try(ctx, window, e)
		if err != nil {
			return err
		}
		if !s.step(e.h, best) {
			return nil
		}
		if e.depth+e.below >= windowDepthMax {
			continue
		}
		window = append(window, e)
		for size += e.size; len(window) > count || (size > windowBytesMax && len(window) > 1); window = window[1:] {
			size -= window[0].size
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
		return nil, fmt.Errorf("%w: a %s where a %s belongs", errFormat, kind, t.kind)
	}
	id, err := s.repack.plan.inv.id(ctx, t.h)
	return &windowEntry{target: *t, id: id, data: data}, err
}

// try returns the smallest delta for e against what is in the window, nil if there is none that saves anything. As in git, a longer chain
// has to be worth it.
func (s *windowSearch) try(ctx context.Context, window []*windowEntry, e *windowEntry) (*foundDelta, error) {
	var program []byte
	var base *windowEntry
	limit := len(e.data)/2 - object.IDSize
	baseDepth := 0
	for _, w := range slices.Backward(window) {
		if w.depth+1+e.below > windowDepthMax || !w.isBefore(&e.target, s.repack.plan.inv.looseLayer()) {
			continue
		}
		most := limit * (windowDepthMax - w.depth) / (windowDepthMax - baseDepth)
		if most < 1 || len(e.data)-len(w.data) >= most || len(e.data) < len(w.data)/32 {
			continue
		}
		if w.index == nil {
			w.index = delta.NewIndex(w.data)
		}
		if found, ok := w.index.Create(nil, e.data, most); ok && (program == nil || len(found) < len(program) || w.depth < baseDepth) {
			program, base = found, w
			limit, baseDepth = len(found), w.depth
		}
	}
	if program == nil {
		return nil, nil
	}
	best := &foundDelta{kind: e.kind, base: base.id, size: int64(len(program)), packed: pack.Deflate(nil, program, pack.LevelDefault)}
	if !s.repack.options.Anew {
		saves, err := s.repack.plan.saves(ctx, e.h, best)
		if err != nil || !saves {
			return nil, err
		}
	}
	e.depth = base.depth + 1
	return best, nil
}
