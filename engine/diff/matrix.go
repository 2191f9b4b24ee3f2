package diff

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"packhorse/odb/fair"
	"packhorse/odb/rescue"
)

// candidate is how well a deleted file would do as the source of an added one.
type candidate struct {
	old, new int
	score    int
	sameName bool
}

// worse orders candidates, the better ones first.
func worse(a, b *candidate) int {
	if c := cmp.Compare(b.score, a.score); c != 0 {
		return c
	}
	switch {
	case a.sameName == b.sameName:
		return 0
	case a.sameName:
		return -1
	default:
		return 1
	}
}

// candidatesMax bounds the candidate sources of each added file. When all of them are taken by
// others, the file has none.
const candidatesMax = 4

// row collects the candidates of one added file. Of equally good ones, which is kept and in which
// order they are asked follows from the places that they get here, as in git.
type row struct {
	candidates [candidatesMax]candidate
	count      int
}

func (r *row) add(c candidate) {
	if r.count < candidatesMax {
		r.candidates[r.count] = c
		r.count++
		return
	}
	worst := 0
	for i := 1; i < candidatesMax; i++ {
		if worse(&r.candidates[i], &r.candidates[worst]) > 0 {
			worst = i
		}
	}
	if worse(&r.candidates[worst], &c) > 0 {
		r.candidates[worst] = c
	}
}

// matrix compares every file of one list with every file of another.
type matrix struct {
	renaming *renaming
	old      []*source
	new      []int
	rows     []row

	next      atomic.Int64
	heldBytes atomic.Int64 // of fingerprints that sources keep
}

// source is a deleted file; its content is read when the first added file may resemble it.
type source struct {
	index int
	size  int64
	mu    sync.Mutex
	print *Fingerprint // guarded by mu; nil before, and after there were too many
}

// printsHeldMax bounds the fingerprints of sources that are kept, in bytes; the others are made
// again for each added file.
const printsHeldMax = 32 << 20

// matchSimilar compares the remaining deleted files with the remaining added ones, on all
// processors.
func (r *renaming) matchSimilar(from, to []int) error {
	m := &matrix{renaming: r, new: to, rows: make([]row, len(to))}
	for _, i := range from {
		s := &source{index: i, size: -1}
		if r.old[i].Mode.IsRegular() {
			info, err := r.objects.Stat(r.ctx, r.old[i].ID)
			if err != nil {
				return err
			}
			s.size = info.Size
		}
		m.old = append(m.old, s)
	}
	if err := m.fill(r.ctx); err != nil {
		return err
	}
	var candidates []candidate
	for i := range m.rows {
		for _, c := range m.rows[i].candidates[:m.rows[i].count] {
			if c.score >= scoreMin {
				candidates = append(candidates, c)
			}
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return worse(&a, &b) })
	for _, c := range candidates {
		if !r.newUsed[c.new] && !r.oldUsed[c.old] {
			r.pair(c.old, c.new, c.score)
		}
	}
	return nil
}

// fill makes the rows, a worker on each processor, in turns of its own.
func (m *matrix) fill(ctx context.Context) error {
	workers, working := rescue.WithContext(fair.Apart(ctx))
	for range min(runtime.GOMAXPROCS(0), len(m.new)) {
		workers.Go(func() error {
			return fair.Do(working, m.fillRows)
		})
	}
	return fair.Rest(ctx, workers.Wait)
}

// fillRows is one worker.
func (m *matrix) fillRows(ctx context.Context) error {
	for {
		i := int(m.next.Add(1) - 1)
		if i >= len(m.new) || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := m.fillRow(ctx, i); err != nil {
			return err
		}
	}
}

func (m *matrix) fillRow(ctx context.Context, i int) error {
	r := m.renaming
	target := &r.new[m.new[i]]
	size := int64(-1)
	if target.Mode.IsRegular() {
		info, err := r.objects.Stat(ctx, target.ID)
		if err != nil {
			return err
		}
		size = info.Size
	}
	var table *comparison
	defer func() {
		if table != nil {
			table.clear()
			comparisons.Put(table)
		}
	}()
	name := basename(target.Path)
	for _, s := range m.old {
		c := candidate{old: s.index, new: m.new[i], sameName: basename(r.old[s.index].Path) == name}
		if size >= 0 && s.size >= 0 && MayScore(s.size, size, scoreMin) {
			if table == nil {
				prints, err := ReadFingerprint(ctx, r.objects, target.ID)
				if err != nil {
					return err
				}
				table = comparisons.Get().(*comparison)
				table.set(prints)
			}
			if err := fair.Pause(ctx); err != nil {
				return err
			}
			prints, err := m.print(ctx, s)
			if err != nil {
				return err
			}
			c.score = table.score(prints)
		}
		m.rows[i].add(c)
	}
	return fair.Pause(ctx)
}

// print returns the fingerprint of a deleted file.
func (m *matrix) print(ctx context.Context, s *source) (*Fingerprint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.print != nil {
		return s.print, nil
	}
	prints, err := ReadFingerprint(ctx, m.renaming.objects, m.renaming.old[s.index].ID)
	if err != nil {
		return nil, err
	}
	if m.heldBytes.Add(int64(len(prints.spans))*8) <= printsHeldMax {
		s.print = prints
	}
	return prints, nil
}
