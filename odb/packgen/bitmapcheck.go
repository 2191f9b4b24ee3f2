package packgen

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// CheckBitmaps implements [odb.Reach].
func (Reachability) CheckBitmaps(
	ctx context.Context, view *odb.View, segments []segment.LayerID, g *segment.File,
) error {
	b, err := newBitmapBuilder(ctx, view)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.checkLayers(ctx, g, segments); err != nil {
		return err
	}
	return b.check(ctx, g)
}

// checkLayers returns an error unless the file covers exactly the segments.
func (b *bitmapBuilder) checkLayers(ctx context.Context, g *segment.File, segments []segment.LayerID) error {
	if n := g.ItemCount(segment.SectionBitmapLayers); n != len(segments) {
		return fmt.Errorf("%w: bitmaps over %d segments beside the segment of number %d", odb.ErrDisagree, n, len(segments))
	}
	for i, id := range segments {
		item, err := g.Item(ctx, segment.SectionBitmapLayers, i)
		if err != nil {
			return err
		}
		if id != segment.LayerID(item) || b.counts[i] != int(binary.BigEndian.Uint32(item[len(segment.LayerID{}):])) {
			return fmt.Errorf("%w: bitmaps cover another list of segments", odb.ErrDisagree)
		}
	}
	return nil
}

// check builds every bitmap again and returns an error if one differs.
func (b *bitmapBuilder) check(ctx context.Context, g *segment.File) error {
	type commit struct {
		id         object.ID
		index      uint32
		generation uint32
	}
	commits := make([]commit, g.Count)
	for i := range commits {
		id, err := g.ID(ctx, uint32(i))
		if err != nil {
			return err
		}
		row, err := b.view.Graph(ctx, id)
		if err != nil {
			return err
		}
		commits[i] = commit{id, uint32(i), row.Generation}
	}
	slices.SortFunc(commits, func(a, b commit) int { return cmp.Compare(a.generation, b.generation) })
	for _, c := range commits {
		words, err := b.build(ctx, c.id)
		if err != nil {
			return err
		}
		stored, err := readBitmap(ctx, g, segment.SectionBitmapRows, c.index, b.wordCount)
		if err != nil {
			return err
		}
		if !slices.Equal(words, stored) {
			return fmt.Errorf("%w: the bitmap of commit %s differs from the objects that it reaches", odb.ErrDisagree, c.id)
		}
	}
	return b.checkTypes(ctx, g)
}

func (b *bitmapBuilder) checkTypes(ctx context.Context, g *segment.File) error {
	w := &bitmapWriter{wordCount: b.wordCount}
	if err := w.addTypes(ctx, b.inv, b.spans); err != nil {
		return err
	}
	for i, data := range w.types {
		want, err := parseBitmap(data, b.wordCount)
		if err != nil {
			return err
		}
		words := make([]uint64, b.wordCount)
		want.WriteDenseTo(words)
		stored, err := readBitmap(ctx, g, segment.SectionBitmapTypes, uint32(i), b.wordCount)
		if err != nil {
			return err
		}
		if !slices.Equal(words, stored) {
			return fmt.Errorf("%w: the bitmap of every %s differs from the stored objects", odb.ErrDisagree,
				object.TypeCommit+object.Type(i))
		}
	}
	return nil
}
