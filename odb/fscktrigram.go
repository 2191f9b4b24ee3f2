package odb

import (
	"context"

	"packhorse/pack/object"
)

// trigramFile checks a trigram file: its blocks, and that each blob has trigrams.
func (f *fsck) trigramFile(ctx context.Context, l *SegmentLayer) error {
	g, err := l.Trigrams.Acquire(ctx)
	if err != nil {
		return f.noted(l.Trigrams.Layer, object.ZeroID, err)
	}
	defer l.Trigrams.Release()
	if ok, err := f.sections(ctx, g); !ok || err != nil {
		return err
	}
	if err := f.sortedIDs(ctx, g); err != nil {
		return err
	}
	for i := range uint32(g.Count) {
		id, err := g.ID(ctx, i)
		if err == nil {
			_, err = g.TrigramsAt(ctx, i)
		}
		if err := f.noted(g.Layer, id, err); err != nil {
			return err
		}
	}
	return nil
}
