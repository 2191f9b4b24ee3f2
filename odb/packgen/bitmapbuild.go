package packgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/odb/progress"
	"packhorse/odb/revwalk"
	"packhorse/odb/segment"
	"packhorse/odb/traffic"
	"packhorse/pack/object"
)

// BuildBitmaps builds bitmaps of the objects that commits reach in the segments of a pool, and
// replaces the former ones. tips, of any type, are the starting points of the walk of history: the
// refs of the repository. Without tips it starts at the tips of the segments. It does nothing in a
// pool without segments, or whose segments hold no commit that reaches only objects in them.
//
// It rests when pace, which may be nil, says so.
//
// Memory is 64 MiB for bitmaps, 16 MiB for objects and about 100 bytes a commit. It may run beside
// everything else; if the segments change meanwhile, it leaves the pool as it is.
func BuildBitmaps(ctx context.Context, s *odb.Store, pool odb.PoolID, tips []object.ID, pace *traffic.Pacer) error {
	v, err := s.View(ctx, pool) // pins its segments
	if err != nil {
		return err
	}
	defer v.Close()
	v.Aside()
	view, segments := v.SegmentsAlone()
	if view == nil {
		return nil
	}
	defer view.Close()
	bitmaps, err := writeBitmaps(ctx, s, view, segments, tips, pace)
	if err != nil || bitmaps.ID == (segment.LayerID{}) {
		return err
	}
	return s.AttachBitmaps(ctx, pool, segments, bitmaps)
}

// writeBitmaps writes the file, and returns none if no commit has a bitmap.
func writeBitmaps(
	ctx context.Context, s *odb.Store, view *odb.View, segments []segment.LayerID, tips []object.ID, pace *traffic.Pacer,
) (segment.Auxiliary, error) {
	b, err := newBitmapBuilder(ctx, view)
	if err != nil {
		return segment.Auxiliary{}, err
	}
	defer b.close()
	b.inv.pace = pace
	if len(tips) == 0 {
		if tips, err = b.summaryTips(ctx); err != nil {
			return segment.Auxiliary{}, err
		}
	}
	commits, err := b.choose(ctx, tips)
	if err != nil {
		return segment.Auxiliary{}, fmt.Errorf("choose commits for bitmaps: %w", err)
	}
	w := &bitmapWriter{wordCount: b.wordCount}
	for _, id := range commits {
		words, err := b.build(ctx, id)
		if err == nil && words != nil {
			err = w.add(id, words)
		}
		if err != nil {
			return segment.Auxiliary{}, err
		}
	}
	if len(w.rows) == 0 {
		return segment.Auxiliary{}, nil
	}
	if err := w.addTypes(ctx, b.inv, b.spans); err != nil {
		return segment.Auxiliary{}, err
	}
	return segment.WriteAuxiliary(ctx, s.Files, segment.KindBitmap, func(sections *segment.SectionWriter) (int, error) {
		return w.write(sections, segments, b.counts), nil
	})
}

// bitmapBuilder computes the objects that commits reach in a list of segments.
type bitmapBuilder struct {
	view      *odb.View // of the segments alone
	inv       *inventory
	spans     []bitmapSpan
	wordCount int
	counts    []int // of objects, by segment
	built     map[object.ID][]uint64
	open      map[object.ID]struct{} // commits that reach an object outside the segments
}

// newBitmapBuilder returns a builder for the segments of a view without other layers, see
// [odb.View.SegmentsAlone]. The caller closes it before the view.
func newBitmapBuilder(ctx context.Context, view *odb.View) (*bitmapBuilder, error) {
	inv, err := newInventory(ctx, view)
	if err != nil {
		return nil, err
	}
	b := &bitmapBuilder{view: view, inv: inv, built: make(map[object.ID][]uint64), open: make(map[object.ID]struct{})}
	count := len(inv.segments)
	layers := make([]int, count)
	for i := range layers {
		layers[i] = count - 1 - i // a view lists the newest first
		b.counts = append(b.counts, inv.segments[layers[i]].Count)
	}
	b.spans, b.wordCount = inv.spansOf(layers)
	return b, nil
}

func (b *bitmapBuilder) close() { b.inv.close() }

// summaryTips returns the tips of the segment summaries.
func (b *bitmapBuilder) summaryTips(ctx context.Context) ([]object.ID, error) {
	var tips []object.ID
	for _, g := range b.inv.segments {
		s, _, err := g.Summary(ctx)
		if err != nil {
			return nil, err
		}
		tips = append(tips, s.Tips...)
	}
	return tips, nil
}

// The choice of commits: the newest tips, and others spread over history, close together where it
// is new.
const (
	bitmapCountMax     = 256
	bitmapMemory       = 64 << 20
	bitmapGapMin       = 16
	bitmapGapMax       = 5000
	bitmapGapPerCommit = 1.0 / 12 // the gap, as a share of the number of newer commits
)

// choose returns the commits that get a bitmap. No commit comes before one that it reaches.
func (b *bitmapBuilder) choose(ctx context.Context, tips []object.ID) ([]object.ID, error) {
	h, list, isTip, err := b.history(ctx, tips)
	if err != nil {
		return nil, err
	}
	countMax := min(bitmapCountMax, max(bitmapMemory/(8*b.wordCount+1), 16))
	chosen := make(map[int32]struct{})
	for _, n := range list { // the newest first
		if isTip[n] && len(chosen) < countMax/2 {
			chosen[n] = struct{}{}
		}
	}
	for i := 0; i < len(list) && len(chosen) < countMax; {
		gap := min(max(int(float64(i)*bitmapGapPerCommit), bitmapGapMin), bitmapGapMax)
		window := list[i:min(i+gap, len(list))]
		// As in git, a merge is the better choice: two lines of history lead to it.
		at := slices.IndexFunc(window, func(n int32) bool { return h.ParentCount(n) > 1 })
		chosen[window[max(at, 0)]] = struct{}{}
		i += len(window)
	}
	numbers := make([]int32, 0, len(chosen))
	for n := range chosen {
		numbers = append(numbers, n)
	}
	slices.SortFunc(numbers, func(a, b int32) int {
		return cmp.Or(cmp.Compare(h.Generation(a), h.Generation(b)), h.ID(a).Compare(h.ID(b)))
	})
	commits := make([]object.ID, len(numbers))
	for i, n := range numbers {
		commits[i] = h.ID(n)
	}
	return commits, nil
}

// history returns the commits that tips reach within the segments, the newest first.
func (b *bitmapBuilder) history(
	ctx context.Context, tips []object.ID,
) (h *revwalk.Graph, list []int32, isTip map[int32]bool, err error) {
	h = revwalk.NewGraph(b.view)
	isTip = make(map[int32]bool)
	var queue revwalk.Queue
	push := func(n int32) error {
		if h.Has(n, revwalk.MarkSeen) {
			return nil
		}
		h.Set(n, revwalk.MarkSeen)
		if err := h.Load(ctx, n); err != nil {
			return outside(err)
		}
		queue.Push(n, h.Seconds(n))
		return nil
	}
	for _, id := range tips {
		n, err := h.Tip(ctx, id)
		if errors.Is(err, revwalk.ErrNotCommit) || errors.Is(err, odb.ErrNotFound) {
			continue
		}
		if err == nil {
			isTip[n] = true
			err = push(n)
		}
		if err != nil {
			return nil, nil, nil, err
		}
	}
	for queue.Len() > 0 {
		if err := b.inv.pace.Rest(ctx); err != nil {
			return nil, nil, nil, err
		}
		n := queue.Pop()
		list = append(list, n)
		for i := range h.ParentCount(n) {
			if err := push(h.ParentsOf(n)[i]); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	return h, list, isTip, nil
}

// outside returns nil for the error that an object is not in the segments, and other errors as they
// are.
func outside(err error) error {
	if errors.Is(err, odb.ErrNotFound) {
		return nil
	}
	return err
}

// build returns the bitmap of a commit, nil if it reaches an object outside the segments. The
// caller builds the bitmaps of the commits that it reaches first.
func (b *bitmapBuilder) build(ctx context.Context, commit object.ID) ([]uint64, error) {
	set := b.inv.newSet()
	c := coverage{inv: b.inv, bitmaps: b.recall, progress: &progress.Meter{}}
	err := c.all(ctx, []object.ID{commit}, nil, &set)
	if errors.Is(err, odb.ErrNotFound) {
		b.open[commit] = struct{}{}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bitmap of commit %s: %w", commit, err)
	}
	words := set.toWords(b.spans, b.wordCount)
	b.built[commit] = words
	return words, nil
}

// recall is the source of bitmaps of a coverage.
func (b *bitmapBuilder) recall(_ context.Context, commit object.ID, set *objectSet) (bool, error) {
	if _, ok := b.open[commit]; ok {
		return false, &odb.NotFoundError{Object: commit}
	}
	words, ok := b.built[commit]
	if ok {
		set.addWords(b.spans, words)
	}
	return ok, nil
}
