// Package packtest makes packs for tests: [NewWriter] right ones, [Encode] also wrong ones.
package packtest

import (
	"bytes"
	"io"

	"packhorse/pack"
	"packhorse/pack/object"
)

// Writer is a [pack.Writer] of contents that it deflates first.
type Writer struct {
	*pack.Writer
	level int
}

// NewWriter returns a Writer of a pack with count entries, which are compressed as level says, by
// pack.LevelDefault when it is 0.
func NewWriter(dst io.Writer, count uint32, level int) *Writer {
	if level == 0 {
		level = pack.LevelDefault
	}
	return &Writer{pack.NewWriter(dst, count), level}
}

// WriteWhole writes an object of type t as it is.
func (w *Writer) WriteWhole(t object.Type, data []byte) (pack.Entry, error) {
	return w.write(pack.EntryHeader{Kind: pack.EntryKind(t)}, data)
}

// WriteOFSDelta writes a delta whose base is the entry at baseOffset, which has been written
// before.
func (w *Writer) WriteOFSDelta(baseOffset int64, delta []byte) (pack.Entry, error) {
	return w.write(pack.EntryHeader{Kind: pack.KindOFSDelta, BaseDistance: w.Offset() - baseOffset}, delta)
}

// WriteRefDelta writes a delta whose base is the object base, in this pack or outside.
func (w *Writer) WriteRefDelta(base object.ID, delta []byte) (pack.Entry, error) {
	return w.write(pack.EntryHeader{Kind: pack.KindRefDelta, BaseID: base}, delta)
}

func (w *Writer) write(h pack.EntryHeader, content []byte) (pack.Entry, error) {
	h.Size = int64(len(content))
	packed := pack.Deflate(nil, content, w.level)
	return w.WriteDeflatedFrom(h, bytes.NewReader(packed), int64(len(packed)))
}
