package segment

import (
	"context"
	"slices"

	"packhorse/pack/object"
)

// A trigram file is a sectioned file whose IDs are blobs, with the place of the trigrams in each;
// see [SizedRowSize]. Their form is that of the caller.

// Trigrams returns the trigrams of a blob, or false if the file has none. They are shared and
// read-only.
func (g *File) Trigrams(ctx context.Context, blob object.ID) ([]byte, bool, error) {
	index, ok, err := g.Lookup(ctx, blob)
	if !ok || err != nil {
		return nil, false, err
	}
	trigrams, err := g.TrigramsAt(ctx, index)
	return trigrams, err == nil, err
}

// TrigramsAt returns the trigrams at an ordinal, shared and read-only.
func (g *File) TrigramsAt(ctx context.Context, index uint32) ([]byte, error) {
	return g.sized(ctx, SectionTrigramRows, SectionTrigramBytes, index)
}

// TrigramWriter writes the sections of a trigram file. It takes 40 bytes of memory a blob until the
// end.
type TrigramWriter struct {
	sections *SectionWriter
	offset   uint64
	blobs    []writtenTrigrams
}

type writtenTrigrams struct {
	blob   object.ID
	offset uint64
	size   int
}

// NewTrigramWriter begins a trigram file.
func NewTrigramWriter(sections *SectionWriter) *TrigramWriter {
	sections.Begin(SectionTrigramBytes)
	return &TrigramWriter{sections: sections}
}

// Add writes the trigrams of a blob, which are not empty. Blobs come in any order, each once.
func (w *TrigramWriter) Add(blob object.ID, trigrams []byte) {
	w.sections.AddBytes(trigrams)
	w.blobs = append(w.blobs, writtenTrigrams{blob, w.offset, len(trigrams)})
	w.offset += uint64(len(trigrams))
}

// Finish writes what is left, and returns the number of blobs.
func (w *TrigramWriter) Finish() int {
	slices.SortFunc(w.blobs, func(a, b writtenTrigrams) int { return a.blob.Compare(b.blob) })
	ids := make([]object.ID, len(w.blobs))
	for i := range w.blobs {
		ids[i] = w.blobs[i].blob
	}
	w.sections.addIDs(ids)
	w.sections.Begin(SectionTrigramRows)
	for _, b := range w.blobs {
		w.sections.Add(sizedRow(b.offset, b.size))
	}
	return len(w.blobs)
}
