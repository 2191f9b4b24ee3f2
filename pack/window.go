package pack

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"
)

// windowSize holds all of most entries, so that they are inflated from memory, and stays in the
// processor's second cache.
const windowSize = 256 << 10

// window is the part of a pack's stream that is in memory. Bytes are read into buf[end:] and
// consumed by moving pos; before they are overwritten, and not one by one, consumed bytes go to the
// raw writer and into the checksums.
type window struct {
	src      io.Reader
	raw      io.Writer // nil: not wanted
	sum      hash.Hash // nil behind the last entry
	buf      []byte
	offset   int64 // of buf[0] in the stream
	pos, end int   // buf[pos:end] is read and not consumed
	settled  int   // buf[settled:pos] is consumed and not yet given to raw and sum
	lent     int   // buf[pos:lent] is with the streaming inflater
	sizeMax  int64
	srcErr   error // from then on nothing more comes

	crc     uint32 // of the current entry's bytes before buf[crcFrom]
	crcFrom int
}

// windowBuffers keeps the memory of readers that have come to their end: most pushes are far
// smaller than a window.
var windowBuffers = sync.Pool{New: func() any { return new([windowSize]byte) }}

func newWindow(src io.Reader, raw io.Writer, sizeMax int64) *window {
	return &window{src: src, raw: raw, sum: sha1.New(), buf: windowBuffers.Get().(*[windowSize]byte)[:], sizeMax: sizeMax}
}

// release frees the window's memory, when nothing more will be read through it. It keeps the unread
// bytes.
func (w *window) release() {
	ahead := bytes.Clone(w.ahead())
	windowBuffers.Put((*[windowSize]byte)(w.buf))
	w.offset += int64(w.pos)
	w.buf, w.pos, w.settled, w.crcFrom, w.lent, w.end = ahead, 0, 0, 0, 0, len(ahead)
}

// position returns the offset in the stream of the next byte to consume.
func (w *window) position() int64 { return w.offset + int64(w.pos) }

// ahead returns the bytes in memory that are not consumed.
func (w *window) ahead() []byte { return w.buf[w.pos:w.end] }

// fill tries to have n bytes ahead, at most the window's size. Fewer are there only when the stream
// has ended, and that is no error yet.
func (w *window) fill(n int) error {
	if len(w.buf)-w.pos < n {
		if err := w.slide(); err != nil {
			return err
		}
	}
	for w.end-w.pos < n && w.srcErr == nil {
		w.read()
	}
	return nil
}

// need is fill, and the stream's end is an error.
func (w *window) need(n int) error {
	if err := w.fill(n); err != nil {
		return err
	}
	if w.end-w.pos < n {
		return w.endError()
	}
	return nil
}

// read takes one piece from the source.
func (w *window) read() {
	for range readsEmptyMax {
		n, err := w.src.Read(w.buf[w.end:])
		w.end += n
		if err != nil {
			w.srcErr = err
		}
		if n > 0 || err != nil {
			return
		}
	}
	w.srcErr = io.ErrNoProgress
}

// readsEmptyMax bounds the consecutive empty reads of a source, as in package bufio.
const readsEmptyMax = 100

// endError is the error of a caller that needs more bytes than come.
func (w *window) endError() error {
	if errors.Is(w.srcErr, io.EOF) {
		return fmt.Errorf("%w: it ends early at offset %d: %w", ErrCorrupt, w.offset+int64(w.end), io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("read pack: %w", w.srcErr)
}

// slide accounts for the consumed bytes and moves the rest to the front.
func (w *window) slide() error {
	if err := w.settle(); err != nil {
		return err
	}
	w.crc = crc32.Update(w.crc, crc32.IEEETable, w.buf[w.crcFrom:w.pos])
	w.end = copy(w.buf, w.buf[w.pos:w.end])
	w.offset += int64(w.pos)
	w.lent -= w.pos
	w.pos, w.settled, w.crcFrom = 0, 0, 0
	return nil
}

// settle gives consumed bytes to the raw writer and into the stream's checksum.
func (w *window) settle() error {
	if err := checkLimit("pack size", w.position(), w.sizeMax); err != nil {
		return err
	}
	piece := w.buf[w.settled:w.pos]
	if w.sum != nil {
		w.sum.Write(piece)
	}
	w.settled = w.pos
	return w.writeRaw(piece)
}

func (w *window) writeRaw(piece []byte) error {
	if w.raw == nil || len(piece) == 0 {
		return nil
	}
	_, err := w.raw.Write(piece)
	return err
}

// beginEntry starts the checksum of an entry at the next byte.
func (w *window) beginEntry() { w.crc, w.crcFrom = 0, w.pos }

// entryCRC returns the checksum of the bytes consumed since beginEntry.
func (w *window) entryCRC() uint32 {
	return crc32.Update(w.crc, crc32.IEEETable, w.buf[w.crcFrom:w.pos])
}

// lend begins to hand out bytes through Read, whose reader returns unused bytes with reclaim.
func (w *window) lend() { w.lent = w.pos }

// reclaim ends lending; the last unused bytes count as not consumed.
func (w *window) reclaim(unused int) { w.pos = w.lent - unused }

// Read implements [io.Reader] between lend and reclaim. The reader may hold back up to
// inflaterBufferSize bytes, which stay in the window.
func (w *window) Read(p []byte) (int, error) {
	if w.lent == w.end {
		w.pos = max(w.pos, w.lent-inflaterBufferSize)
		if err := w.fill(w.end - w.pos + 1); err != nil {
			return 0, err
		}
		if w.lent == w.end {
			return 0, w.endError()
		}
	}
	n := copy(p, w.buf[w.lent:w.end])
	w.lent += n
	return n, nil
}
