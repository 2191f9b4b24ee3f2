package odb

import (
	"context"
	"io"

	"packhorse/odb/file"
	"packhorse/pack/object"
)

// segmentRow is an object of a segment as its writer knows it.
type segmentRow struct {
	ID         object.ID
	Type       object.Type // of the object, also when the entry is a delta
	Size       int64       // of the object
	Offset     int64       // of the entry in the data region
	PackedSize int64       // of the entry, header included
	Base       int64       // the offset of the delta base's entry in the same segment; -1 when the entry is whole
	CRC32      uint32      // IEEE, of the entry as packed, header included
}

// segmentWriter writes a segment file with the graph companion that belongs to it. The order of calls is: data by Write, WriteAt, Rewind
// and AppendWhole; Complete unless the bytes written are a complete pack with its trailer; AddRow and AddGraph in any order; Finish.
// Abort is safe at any time and removes the files.
//
// ReadAt may be called concurrently with itself; everything else belongs to one goroutine.
type segmentWriter struct {
	store *Store
	id    LayerID
	file  file.Writer
}

// newSegmentWriter begins a segment. Nothing of it is visible before it is registered.
func newSegmentWriter(ctx context.Context, s *Store) (*segmentWriter, error) {
	return nil, errUnfinished
}

// Write appends bytes of the data region: a pack as it arrives, header and trailer included.
func (w *segmentWriter) Write(p []byte) (int, error) { return 0, errUnfinished }

// ReadAt reads what was written.
func (w *segmentWriter) ReadAt(p []byte, off int64) (int, error) { return 0, errUnfinished }

// WriteAt replaces bytes that were written, such as the 12 byte header of a thin pack that was completed.
func (w *segmentWriter) WriteAt(p []byte, off int64) (int, error) { return 0, errUnfinished }

// Size is the number of bytes in the data region so far.
func (w *segmentWriter) Size() int64 { return 0 }

// Rewind forgets the data region from off on, such as the trailer of a thin pack; Write goes on there.
func (w *segmentWriter) Rewind(off int64) {}

// AppendWhole writes an object as a whole deflated entry and returns its row, which the caller adds: the base that completes a thin pack.
func (w *segmentWriter) AppendWhole(id object.ID, t object.Type, data []byte) (segmentRow, error) {
	return segmentRow{}, errUnfinished
}

// Complete writes the pack header for count objects, reads the data region once more for its checksum and appends that trailer.
func (w *segmentWriter) Complete(ctx context.Context, count int) error { return errUnfinished }

// AddRow adds an object to the index. Rows beyond a million are sorted in runs on scratch files.
func (w *segmentWriter) AddRow(row segmentRow) error { return errUnfinished }

// AddGraph adds a commit to the graph companion.
func (w *segmentWriter) AddGraph(id object.ID, row GraphRow) error { return errUnfinished }

// Finish writes the index and the graph companion, and makes both files durable. The rows must describe the data region without gaps or
// overlaps, and every base must be a row. The writer is done then, also after an error.
func (w *segmentWriter) Finish(ctx context.Context) (*sealedSegment, error) {
	return nil, errUnfinished
}

// Abort removes the files, unless Finish has succeeded.
func (w *segmentWriter) Abort() error { return errUnfinished }

// sealedSegment is a segment whose files are complete and durable, and not registered yet.
type sealedSegment struct {
	id    LayerID
	graph LayerID // zero when the segment holds no commit
	bytes int64
	count int
}

var (
	_ io.Writer   = (*segmentWriter)(nil)
	_ io.ReaderAt = (*segmentWriter)(nil)
)
