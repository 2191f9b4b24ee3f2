package odb

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"packhorse/pack"
	"packhorse/pack/object"
)

// dataRegion reads the entries of a packfile whose index says where they are: that of a segment, or of one that is still being written.
// Whatever it returns has been verified.
type dataRegion struct {
	env     *fileEnv
	layer   LayerID
	data    io.ReaderAt
	segment *segment // nil while it is being written
}

const (
	// verifiedCopySize is the size in bytes up to which an entry is verified before any of it is written.
	verifiedCopySize = 1 << 20
	copyBufferSize   = 256 << 10
)

// wholeMax is the size in bytes up to which an object, or a delta base, is held in memory whole (docs/invariants.md 13).
const wholeMax = 32 << 20

// errLargeChain says that something in a delta chain is too large to be held in memory.
var errLargeChain = fmt.Errorf("delta chain holds an object over %d MiB: %w", wholeMax>>20, ErrTooLarge)

var copyBuffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

// readPacked appends an entry to dst, header included. id is for errors.
func (d dataRegion) readPacked(ctx context.Context, dst []byte, r segmentRecord, id object.ID) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return dst, err
	}
	if r.PackedSize > wholeMax+1<<20 { // what does not shrink grows a little
		return dst, fmt.Errorf("entry of %d bytes: %w", r.PackedSize, ErrTooLarge)
	}
	start := len(dst)
	dst = slices.Grow(dst, int(r.PackedSize))[:start+int(r.PackedSize)]
	packed := dst[start:]
	if err := readFullAt(d.data, packed, r.Offset); err != nil {
		return dst[:start], d.damaged(ctx, id, r.Offset, err)
	}
	if crc32.ChecksumIEEE(packed) != r.CRC32 {
		return dst[:start], d.failed(ctx, id, r)
	}
	return dst, nil
}

// parse takes apart an entry that was verified.
func (d dataRegion) parse(ctx context.Context, packed []byte, r segmentRecord, id object.ID) (header pack.EntryHeader, payload []byte, err error) {
	header, n, err := pack.ParseEntryHeader(packed)
	if err == nil && header.Kind.IsDelta() != (r.Base != noOrdinal) {
		err = fmt.Errorf("%w: entry at %d is not what the index says", errFormat, r.Offset)
	}
	if err != nil {
		return header, nil, d.damaged(ctx, id, r.Offset, err)
	}
	return header, packed[n:], nil
}

// head returns the header of an entry, which no checksum has covered yet: what is told from it is verified when the entry itself is read.
func (d dataRegion) head(ctx context.Context, r segmentRecord, id object.ID) (header pack.EntryHeader, headerSize int64, err error) {
	if err := ctx.Err(); err != nil {
		return header, 0, err
	}
	head := make([]byte, min(r.PackedSize, pack.EntryHeaderSizeMax))
	if err := readFullAt(d.data, head, r.Offset); err != nil {
		return header, 0, d.damaged(ctx, id, r.Offset, err)
	}
	header, payload, err := d.parse(ctx, head, r, id)
	return header, int64(len(head) - len(payload)), err
}

// content returns what an entry inflates to. Errors: [ErrTooLarge] over wholeMax.
func (d dataRegion) content(ctx context.Context, r segmentRecord, id object.ID) ([]byte, error) {
	buffer := packedBuffers.Get().(*[]byte)
	defer packedBuffers.Put(buffer)
	packed, err := d.readPacked(ctx, (*buffer)[:0], r, id)
	*buffer = packed[:0]
	if err != nil {
		return nil, err
	}
	header, payload, err := d.parse(ctx, packed, r, id)
	if err != nil {
		return nil, err
	}
	if header.Size > wholeMax {
		return nil, errLargeChain
	}
	content, consumed, err := pack.Inflate(nil, payload, header.Size)
	if err == nil && consumed != len(payload) {
		err = fmt.Errorf("%w: bytes behind the entry at %d", errFormat, r.Offset)
	}
	if err == nil && r.Base == noOrdinal && header.Size != r.Size {
		err = fmt.Errorf("%w: entry at %d has %d bytes, not the %d of the index", errFormat, r.Offset, header.Size, r.Size)
	}
	if err != nil {
		return nil, d.damaged(ctx, id, r.Offset, err)
	}
	return content, nil
}

// copyPacked writes the bytes of an entry from skip on. Up to verifiedCopySize they are verified before; beyond, an error at the end says
// that they were wrong.
func (d dataRegion) copyPacked(ctx context.Context, w io.Writer, r segmentRecord, id object.ID, skip int64) error {
	if r.PackedSize <= verifiedCopySize {
		buffer := packedBuffers.Get().(*[]byte)
		defer packedBuffers.Put(buffer)
		packed, err := d.readPacked(ctx, (*buffer)[:0], r, id)
		*buffer = packed
		if err == nil {
			_, err = w.Write(packed[skip:])
		}
		return err
	}
	sum, err := d.stream(ctx, r, id, func(piece []byte) error {
		n := min(skip, int64(len(piece)))
		skip -= n
		_, err := w.Write(piece[n:])
		return err
	})
	if err == nil && sum != r.CRC32 {
		err = d.failed(ctx, id, r)
	}
	return err
}

// packedBuffers holds buffers of entries on their way out.
var packedBuffers = sync.Pool{New: func() any { return new([]byte) }}

// stream passes an entry to visit piece by piece and returns the checksum of what it passed.
func (d dataRegion) stream(ctx context.Context, r segmentRecord, id object.ID, visit func(piece []byte) error) (uint32, error) {
	buffer := copyBuffers.Get().(*[copyBufferSize]byte)
	defer copyBuffers.Put(buffer)
	sum := uint32(0)
	for done := int64(0); done < r.PackedSize; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		piece := buffer[:min(copyBufferSize, r.PackedSize-done)]
		if err := readFullAt(d.data, piece, r.Offset+done); err != nil {
			return 0, d.damaged(ctx, id, r.Offset, err)
		}
		sum = crc32.Update(sum, crc32.IEEETable, piece)
		done += int64(len(piece))
		if err := visit(piece); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// failed says that an entry is not what its checksum says.
func (d dataRegion) failed(ctx context.Context, id object.ID, r segmentRecord) error {
	return d.damaged(ctx, id, r.Offset, fmt.Errorf("%w: entry at %d fails its CRC-32", errFormat, r.Offset))
}

// damaged turns a failed check of the entry at an offset into a counted [CorruptError]; id is zero where nobody has looked which object that is.
func (d dataRegion) damaged(ctx context.Context, id object.ID, offset int64, err error) error {
	if d.segment == nil {
		return d.env.damage.read("", d.layer, id, err)
	}
	if id.IsZero() {
		id = d.segment.objectAt(context.WithoutCancel(ctx), offset)
	}
	return d.env.damage.read(d.segment.fileName(), d.layer, id, err)
}
