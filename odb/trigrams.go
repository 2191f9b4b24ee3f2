package odb

import (
	"context"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Trigrams are the trigram files of a view, held open for a search. They may be used concurrently.
type Trigrams struct {
	shared []*segment.SharedFile
	files  []*segment.File
}

// OpenTrigrams opens the trigram files of a view. It ignores damaged ones. The caller closes them.
func (v *View) OpenTrigrams(ctx context.Context) (*Trigrams, error) {
	t := &Trigrams{}
	for _, l := range v.Segments() {
		if l.Trigrams == nil {
			continue
		}
		g, err := l.Trigrams.Acquire(ctx)
		if segment.Unreadable(err) {
			continue
		}
		if err != nil {
			t.Close()
			return nil, err
		}
		t.shared, t.files = append(t.shared, l.Trigrams), append(t.files, g)
	}
	return t, nil
}

// Close releases the files.
func (t *Trigrams) Close() {
	for _, f := range t.shared {
		f.Release()
	}
	t.shared, t.files = nil, nil
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
