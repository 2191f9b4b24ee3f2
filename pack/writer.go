package pack

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"packhorse/pack/invariants"
)

// ErrCount says that a [Writer] was closed before or written to after the number of entries that
// its header promises.
var ErrCount = errors.New("pack: number of entries differs from the header")

// Writer writes a packfile as a stream. For one goroutine; an error stays.
//
// Small writes go to the destination as they come: give it a buffered one.
type Writer struct {
	dst    io.Writer
	sum    hash.Hash
	offset int64
	left   uint32 // entries that the header still promises
	buf    []byte
	err    error
}

// NewWriter returns a Writer of a pack with count entries, whose header it writes with the first
// entry or on Close.
func NewWriter(dst io.Writer, count uint32) *Writer {
	return &Writer{dst: dst, sum: sha1.New(), left: count}
}

// Offset returns where the next entry begins, in bytes from the start of the pack.
func (w *Writer) Offset() int64 { return max(w.offset, HeaderSize) }

// entry describes the entry that begins at the current offset and whose header lies in buf.
func (w *Writer) entry(h EntryHeader) Entry {
	e := Entry{Offset: w.offset, HeaderSize: len(w.buf), Kind: h.Kind, Size: h.Size, BaseID: h.BaseID}
	if h.Kind == KindOFSDelta {
		e.BaseOffset = e.Offset - h.BaseDistance
		if invariants.Enabled {
			invariants.Check(w.err != nil || h.BaseDistance > 0 && e.BaseOffset >= HeaderSize,
				"pack: the entry at %d is a delta of the one at %d", e.Offset, e.BaseOffset)
		}
	}
	return e
}

// WriteDeflatedFrom writes an entry whose content is the zlib stream of packedSize bytes in src,
// verbatim, in pieces of 64 KiB. It returns how the entry was written.
func (w *Writer) WriteDeflatedFrom(h EntryHeader, src io.Reader, packedSize int64) (Entry, error) {
	w.begin()
	w.buf = h.Append(w.buf[:0])
	entry := w.entry(h)
	entry.CRC32 = crc32.ChecksumIEEE(w.buf)
	w.write(w.buf)
	w.copy(src, packedSize, &entry.CRC32)
	entry.PackedSize = w.offset - entry.Offset
	return entry, w.err
}

const copyBufferSize = 64 << 10

// copy updates the CRC with the copied bytes.
func (w *Writer) copy(src io.Reader, size int64, crc *uint32) {
	if cap(w.buf) < copyBufferSize {
		w.buf = make([]byte, copyBufferSize)
	}
	for size > 0 && w.err == nil {
		piece := w.buf[:min(size, copyBufferSize)]
		if _, err := io.ReadFull(src, piece); err != nil {
			w.fail(fmt.Errorf("copy into pack: %w", err))
			return
		}
		*crc = crc32.Update(*crc, crc32.IEEETable, piece)
		w.write(piece)
		size -= int64(len(piece))
	}
}

// Close writes the trailer and returns the pack's checksum. It does not close the destination.
// Errors: [ErrCount], and those of before.
func (w *Writer) Close() (trailer [TrailerSize]byte, err error) {
	if w.left != 0 {
		w.fail(fmt.Errorf("%w: %d missing", ErrCount, w.left))
	}
	w.beginPack()
	if w.err != nil {
		return trailer, w.err
	}
	w.sum.Sum(trailer[:0])
	_, w.err = w.dst.Write(trailer[:])
	return trailer, w.err
}

// beginPack makes sure that the header is written.
func (w *Writer) beginPack() {
	if w.offset == 0 {
		w.write(Header{Version: 2, Count: w.left}.Append(nil))
	}
}

// begin makes sure that one more entry was promised.
func (w *Writer) begin() {
	w.beginPack()
	if w.left == 0 {
		w.fail(fmt.Errorf("%w: too many", ErrCount))
		return
	}
	w.left--
}

func (w *Writer) write(p []byte) {
	if w.err != nil {
		return
	}
	n, err := w.dst.Write(p)
	w.sum.Write(p[:n])
	w.offset += int64(n)
	w.fail(err)
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}
