package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ReaderOptions are options of a [Reader].
type ReaderOptions struct {
	// Raw gets every byte of the pack in order, trailer included, in pieces of up to 256 KiB: an
	// entry's bytes at the latest when the pack has been read to its end. Bytes behind the pack do not
	// get there.
	Raw    io.Writer
	Limits Limits
}

// Reader reads a packfile as a stream, once, entry by entry:
//
//	for {
//		entry, err := r.Next()
//		if errors.Is(err, io.EOF) {
//			break
//		}
//		content, err = r.ReadContent(content[:0])
//	}
//
// It checks the format, each entry's stated size and zlib checksum, the trailer, and the limits;
// deltas are content like any other and bases are not resolved. Memory is a window of 256 KiB and,
// for callers of [Reader.Read], one buffer of that size, regardless of the pack. It reads ahead, so
// that the source should end with the pack or keep delivering. For one goroutine.
type Reader struct {
	window   *window
	limits   Limits
	header   *Header
	left     uint32 // entries after the current one
	entry    Entry
	state    readerState
	inflated int64 // stated sizes of all entries so far
	err      error // result of every further call

	memory     *memoryInflater
	content    []byte // stateContent: what Read has not returned yet
	buf        []byte // memory of content
	stream     *Inflater
	streamLeft int64 // stated size less what stream has delivered
}

type readerState uint8

const (
	stateDone    readerState = iota // no entry, or its content has been read to the end
	stateFresh                      // header read, content untouched
	stateContent                    // content is in memory
	stateStream                     // content comes from stream
)

// NewReader returns a Reader of the pack in src.
func NewReader(src io.Reader, options ReaderOptions) *Reader {
	limits := options.Limits.withDefaults()
	return &Reader{
		window: newWindow(src, options.Raw, limits.PackSizeMax),
		limits: limits,
		memory: memoryInflaters.Get().(*memoryInflater),
	}
}

// Header returns the pack's header. Errors: [ErrCorrupt], [ErrLimit] when it counts too many
// entries, and those of the source.
func (r *Reader) Header() (Header, error) {
	switch {
	case r.header != nil:
		return *r.header, nil
	case r.err != nil:
		return Header{}, r.err
	}
	if err := r.readHeader(); err != nil {
		return Header{}, r.fail(err)
	}
	return *r.header, nil
}

func (r *Reader) readHeader() error {
	if err := r.window.need(HeaderSize); err != nil {
		return err
	}
	header, err := ParseHeader(r.window.ahead())
	if err != nil {
		return err
	}
	if err := checkLimit("object count", int64(header.Count), r.limits.CountMax); err != nil {
		return err
	}
	r.window.pos += HeaderSize
	r.header, r.left = &header, header.Count
	return nil
}

// Next moves to the next entry, past the unread rest of the current one. PackedSize and CRC32 of
// the returned Entry are not known yet.
//
// Errors: [io.EOF] behind the last entry, the trailer having been verified; [ErrCorrupt], with
// [io.ErrUnexpectedEOF] when the source ends early; [ErrChecksum]; [ErrLimit]; those of the source
// and of the raw writer. An error stays.
func (r *Reader) Next() (Entry, error) {
	if _, err := r.Header(); err != nil {
		return Entry{}, err
	}
	if r.err != nil {
		return Entry{}, r.err
	}
	if err := r.next(); err != nil {
		return Entry{}, r.fail(err)
	}
	return r.entry, nil
}

func (r *Reader) next() error {
	if err := r.skip(); err != nil {
		return r.entryError(err)
	}
	if r.left == 0 {
		return r.readTrailer()
	}
	r.left--
	w := r.window
	if err := w.fill(EntryHeaderSizeMax); err != nil {
		return err
	}
	offset := w.position()
	header, n, err := ParseEntryHeader(w.ahead())
	if err != nil {
		if len(w.ahead()) < EntryHeaderSizeMax {
			return w.endError()
		}
		return fmt.Errorf("entry at offset %d: %w", offset, err)
	}
	if err := checkLimit("object size", header.Size, r.limits.ObjectSizeMax); err != nil {
		return err
	}
	r.entry = Entry{Offset: offset, HeaderSize: n, Kind: header.Kind, Size: header.Size, BaseID: header.BaseID}
	if header.Kind == KindOFSDelta {
		if r.entry.BaseOffset = offset - header.BaseDistance; r.entry.BaseOffset < HeaderSize {
			return fmt.Errorf("entry at offset %d: %w", offset, corrupt("base before the first entry"))
		}
	}
	w.beginEntry()
	w.pos += n
	r.state = stateFresh
	return nil
}

// Entry returns the current entry; PackedSize and CRC32 are set once its content has been read to
// the end.
func (r *Reader) Entry() Entry { return r.entry }

// Offset returns the number of bytes of the pack read so far.
func (r *Reader) Offset() int64 { return r.window.position() }

// Rest returns a reader of the bytes behind the pack, for use after [Reader.Next] has returned
// [io.EOF].
func (r *Reader) Rest() io.Reader {
	if errors.Is(r.window.srcErr, io.EOF) {
		return bytes.NewReader(r.window.ahead())
	}
	return io.MultiReader(bytes.NewReader(r.window.ahead()), r.window.src)
}

// skip consumes the unread rest of the current entry.
func (r *Reader) skip() error {
	switch r.state {
	case stateFresh:
		content, err := r.inflateWindow(r.buf[:0])
		if errors.Is(err, errNotInWindow) {
			r.beginStream()
			return r.drain()
		}
		r.buf = content
		return err
	case stateStream:
		return r.drain()
	case stateContent, stateDone:
	}
	return nil
}

// finish records the fields that are known at the end of an entry, the window standing behind it.
func (r *Reader) finish() error {
	r.state = stateDone
	r.entry.PackedSize = r.window.position() - r.entry.Offset
	r.entry.CRC32 = r.window.entryCRC()
	r.inflated += r.entry.Size
	return r.limits.checkInflated(r.inflated, r.window.position())
}

// readTrailer verifies the checksum and returns [io.EOF] if it is right.
func (r *Reader) readTrailer() error {
	w := r.window
	if err := w.settle(); err != nil {
		return err
	}
	if err := w.need(TrailerSize); err != nil {
		return err
	}
	if !bytes.Equal(w.sum.Sum(nil), w.ahead()[:TrailerSize]) {
		return ErrChecksum
	}
	w.sum = nil // the trailer is no part of it
	w.pos += TrailerSize
	if err := w.settle(); err != nil {
		return err
	}
	return io.EOF
}

func (r *Reader) entryError(err error) error {
	return fmt.Errorf("entry at offset %d: %w", r.entry.Offset, err)
}

// fail makes err the Reader's last word, and gives back the memory that it no longer needs.
func (r *Reader) fail(err error) error {
	r.err = err
	r.window.release()
	memoryInflaters.Put(r.memory)
	r.memory, r.stream = nil, nil
	return err
}
