package odb

import (
	"context"

	"packhorse/odb/segment"
)

// trigramFile checks a trigram file: its blocks, and that each blob has trigrams.
func (f *fsck) trigramFile(ctx context.Context, l *SegmentLayer) error {
	return f.auxiliaryFile(ctx, l.Trigrams, func(g *segment.File) error {
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
	})
}
