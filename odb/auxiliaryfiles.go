package odb

import (
	"context"

	"packhorse/odb/segment"
)

// auxiliaryFiles are the auxiliary files of one kind of a view, held open.
type auxiliaryFiles struct {
	shared []*segment.SharedFile
	files  []*segment.File
}

// openAuxiliary opens the files that of returns for the segments of a view, nil for none. It
// ignores damaged ones.
func (v *View) openAuxiliary(
	ctx context.Context, of func(*SegmentLayer) *segment.SharedFile,
) (auxiliaryFiles, error) {
	var a auxiliaryFiles
	for _, l := range v.Segments() {
		shared := of(l)
		if shared == nil {
			continue
		}
		g, err := shared.Acquire(ctx)
		if segment.Unreadable(err) {
			continue
		}
		if err != nil {
			a.Close()
			return auxiliaryFiles{}, err
		}
		a.shared, a.files = append(a.shared, shared), append(a.files, g)
	}
	return a, nil
}

// Close releases the files.
func (a *auxiliaryFiles) Close() {
	for _, f := range a.shared {
		f.Release()
	}
	a.shared, a.files = nil, nil
}
