package odb

import (
	"context"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Trigrams are the trigram files of a view, held open for a search. They may be used concurrently.
type Trigrams struct{ auxiliaryFiles }

// OpenTrigrams opens the trigram files of a view. It ignores damaged ones. The caller closes them.
func (v *View) OpenTrigrams(ctx context.Context) (*Trigrams, error) {
	files, err := v.openAuxiliary(ctx, func(l *SegmentLayer) *segment.SharedFile { return l.Trigrams })
	if err != nil {
		return nil, err
	}
	return &Trigrams{files}, nil
}

// Find returns the trigrams of a blob, in the form of [Options], empty if they are not known. They
// are shared and read-only.
func (t *Trigrams) Find(ctx context.Context, blob object.ID) ([]byte, error) {
	for _, g := range t.files {
		trigrams, ok, err := g.Trigrams(ctx, blob)
		if segment.Unreadable(err) {
			continue
		}
		if ok || err != nil {
			return trigrams, err
		}
	}
	return nil, nil
}
