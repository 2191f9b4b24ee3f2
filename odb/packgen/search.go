package packgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

const (
	// searchCountMax and searchBytesMax bound, for one pack, the objects for which deltas are
	// searched, and the bytes of the deltas.
	searchCountMax = 20_000
	searchBytesMax = 32 << 20
	// searchSizeMin and searchSizeMax bound the sizes of objects for which deltas are searched.
	searchSizeMin = 64
	searchSizeMax = 8 << 20
	// searchDepthMax is the longest chain of new deltas in the pack.
	searchDepthMax = 10
	// searchKnownMax and searchSentMax are the numbers of versions of a path that are tried as bases:
	// versions at the client, and versions written before.
	searchKnownMax = 2
	searchSentMax  = 4
	// searchWindowMax bounds the bytes of bases held for a path, apart from the client's versions and
	// the latest one.
	searchWindowMax = 16 << 20
	// searchEnough is the reciprocal share of a target: if a delta is shorter than that, no other base
	// is tried.
	searchEnough = 64
	// reuseSizeMax is the size up to which a stored delta against a base at the client is sent without
	// a search for a shorter one.
	reuseSizeMax = 256
)

// search makes deltas for the searchable objects of an incremental fetch: against the client's
// version of the same path, as git pack-objects --thin does, or against another such version of the
// path that is written before.
func (p *PackPlan) search(ctx context.Context, paths []pathVersions) error {
	// The plan closes it, also after an error.
	p.deltas = newFoundDeltas(p.inv.view.Store().Env().Files, 2*searchBytesMax)
	s := deltaSearch{plan: p, work: make(chan pathVersions), found: p.deltas}
	var workers sync.WaitGroup
	for range 2 {
		rescue.Go(&workers, func() error {
			var index delta.Index
			for f := range s.work { // to its end, also after a failure
				err := rescue.Do(func() error {
					return fair.Do(fair.Apart(ctx), func(ctx context.Context) error { return s.searchPath(ctx, &index, &f) })
				})
				if err != nil {
					s.fail(err)
				}
			}
			return nil
		}, s.fail)
	}
	total, done, err := 0, 0, error(nil)
	for i := range paths {
		f := &paths[i]
		if f.sent, err = p.searchable(ctx, f.sent); err != nil {
			break
		}
		if total += len(f.sent); total > searchCountMax {
			break
		}
		if len(f.sent) > 0 {
			_ = fair.Rest(ctx, func() error {
				s.work <- *f
				return nil
			})
			done += len(f.sent)
			p.progress.Step(phaseCompressing, int64(done), 0)
		}
	}
	close(s.work)
	_ = fair.Rest(ctx, func() error {
		workers.Wait()
		return nil
	})
	if err = errors.Join(err, s.err); err != nil {
		return fmt.Errorf("search deltas: %w", err)
	}
	if done > 0 {
		p.progress.End(phaseCompressing, int64(done), int64(done))
	}
	return nil
}

// searchable returns the versions of a path for which a delta is searched, in the order of writing.
// They have a size for a delta, and would be sent whole, or as a long stored delta against an
// object that only the client has.
func (p *PackPlan) searchable(ctx context.Context, sent []handle) ([]handle, error) {
	var versions []handle
	offsets := make(map[handle]int64, len(sent))
	for _, h := range sent {
		if !p.send.has(h) {
			continue
		}
		info, err := p.inv.stat(ctx, h)
		if err != nil {
			return nil, err
		}
		if info.Size < searchSizeMin || info.Size > searchSizeMax {
			continue
		}
		base, offset, packedSize, err := p.storedBase(ctx, h)
		if err != nil {
			return nil, err
		}
		if !base.IsZero() {
			at, ok, err := p.resolvable(ctx, base, info.Type)
			if err != nil {
				return nil, err
			}
			if ok && (p.send.has(at) || packedSize < reuseSizeMax) {
				continue
			}
		}
		versions = append(versions, h)
		offsets[h] = offset
	}
	slices.SortFunc(versions, func(a, b handle) int {
		return cmp.Or(cmp.Compare(a.layer(), b.layer()), cmp.Compare(offsets[a], offsets[b]), cmp.Compare(a, b))
	})
	return versions, nil
}

// storedBase returns the base that an object is stored against, zero if it is stored whole, and the
// place of its entry in its segment.
func (p *PackPlan) storedBase(ctx context.Context, h handle) (base object.ID, offset, packedSize int64, err error) {
	if h.layer() == p.inv.unpackedLayer() {
		e, err := p.inv.unpackedEntry(ctx, h.number())
		return e.Base, 0, e.PayloadSize, err
	}
	g := p.inv.segments[h.layer()]
	r, err := g.Record(ctx, h.number())
	if err == nil && r.Base != segment.NoOrdinal {
		base, err = g.ID(ctx, r.Base)
	}
	return base, r.Offset, r.PackedSize, err
}

// resolvable returns the handle of a delta base and reports whether the client can find it: in the
// pack or, for a thin pack, in its own repository.
func (p *PackPlan) resolvable(ctx context.Context, base object.ID, t object.Type) (handle, bool, error) {
	h, ok, err := p.inv.assigned(ctx, base)
	if !ok && err == nil && t == object.TypeCommit { // the client may have it without a handle
		h, err = p.inv.locate(ctx, base)
		if errors.Is(err, odb.ErrNotFound) {
			return 0, false, nil // stored, but not readable through this view
		}
		ok = err == nil
	}
	if !ok || err != nil {
		return 0, false, err
	}
	return h, p.send.has(h) || p.request.Thin && p.clientHas(h, base, t), nil
}

// deltaSearch is one search, on two goroutines.
type deltaSearch struct {
	plan *PackPlan
	work chan pathVersions

	mu    sync.Mutex // guards the fields below
	found *foundDeltas
	err   error
}

// full reports whether the deltas have reached their bounds, or an error has ended the search.
func (s *deltaSearch) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || s.found.bytes() > searchBytesMax
}

func (s *deltaSearch) keep(ctx context.Context, h handle, made *madeDelta) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found.add(ctx, h, made)
}

func (s *deltaSearch) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, err)
}

// candidate is a possible base.
type candidate struct {
	id    object.ID
	data  []byte
	depth int // of the chain of new deltas that ends in it
}

// searchPath finds deltas for the versions of one path. It uses the memory of index.
func (s *deltaSearch) searchPath(ctx context.Context, index *delta.Index, f *pathVersions) error {
	if s.full() {
		return nil
	}
	bases, err := s.knownBases(ctx, f)
	if err != nil {
		return err
	}
	known := len(bases)
	for _, h := range f.sent {
		if s.full() {
			return nil
		}
		if err := fair.Pause(ctx); err != nil {
			return err
		}
		target, err := s.load(ctx, h, f.kind)
		if err != nil {
			return err
		}
		base, program := bestDelta(index, bases, target.data)
		if program != nil {
			made := makeDelta(base.id, f.kind, program)
			saves, err := s.plan.saves(ctx, h, &made.foundDelta)
			if err != nil {
				return err
			}
			if saves {
				if err := s.keep(ctx, h, &made); err != nil {
					return err
				}
				target.depth = base.depth + 1
			}
		}
		if target.depth < searchDepthMax {
			bases = append(bases, target)
			for len(bases) > known+1 && (len(bases) > known+searchSentMax || sizeOf(bases) > searchWindowMax) {
				bases = slices.Delete(bases, known, known+1)
			}
		}
	}
	return nil
}

// sizeOf returns the total size of candidates.
func sizeOf(candidates []candidate) (bytes int) {
	for i := range candidates {
		bytes += len(candidates[i].data)
	}
	return bytes
}

// knownBases returns versions of the path that the client has.
func (s *deltaSearch) knownBases(ctx context.Context, f *pathVersions) ([]candidate, error) {
	if !s.plan.request.Thin || !s.plan.request.Filter.IsZero() {
		return nil, nil
	}
	var bases []candidate
	for _, h := range f.known[:min(len(f.known), searchKnownMax)] {
		info, err := s.plan.inv.stat(ctx, h)
		if err != nil {
			return nil, err
		}
		if info.Size > searchSizeMax {
			continue
		}
		c, err := s.load(ctx, h, f.kind)
		if err != nil {
			return nil, err
		}
		bases = append(bases, c)
	}
	return bases, nil
}

func (s *deltaSearch) load(ctx context.Context, h handle, kind object.Type) (candidate, error) {
	t, data, err := s.plan.inv.readBase(ctx, h)
	if err != nil {
		return candidate{}, err
	}
	if t != kind {
		return candidate{}, fmt.Errorf("%w: a %s instead of a %s", segment.ErrFormat, t, kind)
	}
	id, err := s.plan.inv.id(ctx, h)
	return candidate{id: id, data: data}, err
}

// bestDelta returns the smallest delta for target against one of bases, the first that is short
// enough, or nil if none saves half of the bytes. It uses the memory of index.
func bestDelta(index *delta.Index, bases []candidate, target []byte) (base *candidate, program []byte) {
	limit := len(target)/2 - object.IDSize
	for i := range bases {
		if program != nil && len(program) < len(target)/searchEnough {
			break
		}
		b := &bases[len(bases)-1-i] // the latest is the likeliest
		// As in git: a delta must insert the bytes that the base lacks, and a far larger base is
		// unrelated.
		if len(target)-len(b.data) >= limit || len(target) < len(b.data)/32 {
			continue
		}
		if found, ok := index.Between(nil, b.data, target, limit); ok {
			program, limit, base = found, len(found)-1, b
		}
	}
	return base, program
}

// saves reports whether a delta is shorter than the stored form of the object.
func (p *PackPlan) saves(ctx context.Context, h handle, found *foundDelta) (bool, error) {
	size := int64(found.packedSize) + object.IDSize
	if h.layer() == p.inv.unpackedLayer() {
		e, err := p.inv.unpackedEntry(ctx, h.number())
		return e.Delta() || e.Encoding != odb.EncodingZlib || size < e.PayloadSize, err
	}
	base, _, packedSize, err := p.storedBase(ctx, h)
	if err != nil || size < packedSize {
		return err == nil, err
	}
	if base.IsZero() {
		return false, nil
	}
	_, ok, err := p.resolvable(ctx, base, found.kind)
	return !ok, err // else the stored delta is sent
}
