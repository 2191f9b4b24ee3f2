package repack

import (
	"cmp"
	"context"
	"slices"

	"packhorse/odb"
	"packhorse/odb/segment"
	"packhorse/odb/traffic"
	"packhorse/pack/object"
)

// A segment has the trigrams of the files of its trigramHeads newest heads, trigramFiles of them at
// most. Only a segment whose pack is at least trigramRatio times smaller than their least size is
// looked at.
const (
	trigramHeads = 8
	trigramFiles = 1 << 18
	trigramRatio = 4
)

// BuildTrigrams builds the trigrams of every segment of a pool that lacks them and is large enough:
// those of the newest files. A search reads fewer files with them, and finds the same without.
//
// It takes 16 MiB of memory for objects, some 100 bytes a file, and two a commit. It may run beside
// everything else; it skips a segment that leaves the pool meanwhile, or that another call is at.
// It rests while requests are served: pause is the rest as a share of the work. Errors:
// [odb.ErrNoPool] and those of reading.
func BuildTrigrams(ctx context.Context, s *odb.Store, pool odb.PoolID, pause float64) error {
	return besideRequests(ctx, s, pool, func(v *odb.View) error {
		return buildTrigrams(ctx, v, v, s.NewPacer(pause))
	})
}

// buildTrigrams is [BuildTrigrams] that copies the trigrams that known has.
func buildTrigrams(ctx context.Context, v, known *odb.View, pace *traffic.Pacer) error {
	build := func(l *odb.SegmentLayer) (_ segment.Auxiliary, err error) {
		b := &trigramBuilder{view: v, pace: pace, seen: make(map[object.ID]struct{})}
		if b.stored, err = v.OpenTrigrams(ctx); err != nil {
			return segment.Auxiliary{}, err
		}
		defer b.stored.Close()
		if b.known, err = known.OpenTrigrams(ctx); err != nil {
			return segment.Auxiliary{}, err
		}
		defer b.known.Close()
		return b.build(ctx, l)
	}
	return attachMissing(ctx, v, segment.KindTrigram, "trigrams", lacksTrigrams, build)
}

// lacksTrigrams reports whether a segment has no trigrams, and commits and bytes enough for some.
// Those of a borrowed one are left to the pool that it was made for.
func lacksTrigrams(ctx context.Context, v *odb.View, l *odb.SegmentLayer) (bool, error) {
	if v.Store().Options().Trigrams == nil || l.Rows == nil || l.Trigrams != nil || v.IsBorrowed(l) {
		return false, nil
	}
	g, err := l.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer l.Release(g)
	return g.DataSize*trigramRatio >= v.Store().Options().TrigramBytes, nil
}

// trigramBuilder makes the trigrams of a segment.
type trigramBuilder struct {
	view   *odb.View
	stored *odb.Trigrams // of other segments of the view
	known  *odb.Trigrams // also of former ones
	pace   *traffic.Pacer
	seen   map[object.ID]struct{} // trees and blobs
	blobs  []object.ID            // in the order of trees
	bytes  int64                  // of their content
}

// build writes the trigram file of a segment, which is empty where the files are small or others
// have them.
func (b *trigramBuilder) build(ctx context.Context, l *odb.SegmentLayer) (segment.Auxiliary, error) {
	heads, err := b.heads(ctx, l)
	if err != nil {
		return segment.Auxiliary{}, err
	}
	for i := range heads {
		if err := b.collect(ctx, heads[i].Tree, b.view.Store().Limits().TreeDepth); err != nil {
			return segment.Auxiliary{}, err
		}
	}
	if b.bytes < b.view.Store().Options().TrigramBytes {
		b.blobs = nil
	}
	files := b.view.Store().Env().Files
	return segment.WriteAuxiliary(ctx, files, segment.KindTrigram, func(sections *segment.SectionWriter) (int, error) {
		w := segment.NewTrigramWriter(sections)
		var buffer []byte
		for _, id := range b.blobs {
			trigrams, err := b.trigrams(ctx, id, &buffer)
			if err != nil {
				return 0, err
			}
			if len(trigrams) > 0 {
				w.Add(id, trigrams)
			}
		}
		return w.Finish(), nil
	})
}

// heads returns the newest of the commits that are no parent of another commit of the segment.
func (b *trigramBuilder) heads(ctx context.Context, l *odb.SegmentLayer) ([]odb.GraphRow, error) {
	rows, err := l.Rows.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Rows.Release()
	isParent := make([]bool, rows.Count)
	for i := range uint32(rows.Count) {
		row, err := rows.GraphRowAt(ctx, i)
		if err != nil {
			return nil, err
		}
		for _, parent := range row.Parents {
			index, ok, err := rows.Lookup(ctx, parent)
			if err != nil {
				return nil, err
			}
			if ok {
				isParent[index] = true
			}
		}
	}
	var heads []odb.GraphRow
	for i := range uint32(rows.Count) {
		if isParent[i] {
			continue
		}
		row, err := rows.GraphRowAt(ctx, i)
		if err != nil {
			return nil, err
		}
		heads = append(heads, row)
		slices.SortStableFunc(heads, func(x, y odb.GraphRow) int { return cmp.Compare(y.Seconds, x.Seconds) })
		heads = heads[:min(len(heads), trigramHeads)]
	}
	return heads, nil
}

// collect adds the files of a tree that are new, and whose trigrams no other segment has.
func (b *trigramBuilder) collect(ctx context.Context, tree object.ID, depth int) error {
	if _, ok := b.seen[tree]; ok || depth == 0 {
		return nil
	}
	b.seen[tree] = struct{}{}
	data, err := b.view.ReadTree(ctx, tree)
	if err != nil {
		return err
	}
	it := object.IterTree(data)
	for it.Next() {
		switch {
		case it.Mode.IsTree():
			err = b.collect(ctx, it.ID, depth-1)
		case it.Mode.IsRegular():
			err = b.collectFile(ctx, it.ID)
		}
		if err != nil {
			return err
		}
	}
	return it.Err()
}

func (b *trigramBuilder) collectFile(ctx context.Context, id object.ID) error {
	if _, ok := b.seen[id]; ok || len(b.blobs) == trigramFiles {
		return nil
	}
	b.seen[id] = struct{}{}
	if err := b.pace.Rest(ctx); err != nil {
		return err
	}
	if stored, err := b.stored.Find(ctx, id); err != nil || len(stored) > 0 {
		return err
	}
	info, err := b.view.Stat(ctx, id)
	if err != nil || info.Size > segment.WholeMax {
		return err
	}
	b.blobs = append(b.blobs, id)
	b.bytes += info.Size
	return nil
}

// trigrams returns those of a file, which it reads into the buffer unless they are known.
func (b *trigramBuilder) trigrams(ctx context.Context, id object.ID, buffer *[]byte) ([]byte, error) {
	if err := b.pace.Rest(ctx); err != nil {
		return nil, err
	}
	if known, err := b.known.Find(ctx, id); err != nil || len(known) > 0 {
		return known, err
	}
	_, text, err := b.view.ReadInto(ctx, id, buffer)
	if err != nil {
		return nil, err
	}
	return b.view.Store().Options().Trigrams(text), nil
}
