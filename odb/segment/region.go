package segment

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"packhorse/odb/file"
	"packhorse/pack"
	"packhorse/pack/object"
)

// Region reads the entries of a packfile by its index records: that of a segment, or of one that is
// still being written. It verifies everything that it returns.
type Region struct {
	env     *Env
	Layer   LayerID
	Data    file.ReaderAt
	segment Segment // without a File while it is being written
}

const (
	// verifiedCopySize is the size in bytes up to which CopyPacked verifies an entry before it writes
	// any of it.
	verifiedCopySize = 1 << 20
	// CopyBufferSize is the size in bytes of the pieces in which entries are copied.
	CopyBufferSize = 256 << 10
)

// WholeMax is the size in bytes up to which memory holds a whole object or delta base
// (docs/invariants.md 13).
const WholeMax = 32 << 20

// ErrLargeChain says that an object of a delta chain is larger than WholeMax.
var ErrLargeChain = fmt.Errorf("delta chain holds an object over %d MiB: %w", WholeMax>>20, ErrTooLarge)

var copyBuffers = sync.Pool{New: func() any { return new([CopyBufferSize]byte) }}

// ReadPacked appends an entry to dst, header included. id is for errors. Errors: [ErrCorrupt];
// [ErrTooLarge] for an entry too large for memory.
func (d Region) ReadPacked(ctx context.Context, dst []byte, r Record, id object.ID) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return dst, err
	}
	if r.PackedSize > WholeMax+1<<20 { // incompressible content grows a little
		return dst, fmt.Errorf("entry of %d bytes: %w", r.PackedSize, ErrTooLarge)
	}
	start := len(dst)
	dst = slices.Grow(dst, int(r.PackedSize))[:start+int(r.PackedSize)]
	packed := dst[start:]
	err := ReadChecked(ctx, d.Data, packed, r.Offset, func(packed []byte) error {
		return r.checkSum(crc32.ChecksumIEEE(packed))
	})
	if err != nil {
		return dst[:start], d.Damaged(ctx, id, r.Offset, err)
	}
	return dst, nil
}

// Parse splits a verified entry into its parts.
func (d Region) Parse(
	ctx context.Context, packed []byte, r Record, id object.ID,
) (header pack.EntryHeader, payload []byte, err error) {
	header, n, err := r.parse(packed)
	if err != nil {
		return header, nil, d.Damaged(ctx, id, r.Offset, err)
	}
	return header, packed[n:], nil
}

// parse returns the header at the begin of the entry of r, and its size.
func (r *Record) parse(packed []byte) (pack.EntryHeader, int, error) {
	header, n, err := pack.ParseEntryHeader(packed)
	if err == nil && header.Kind.IsDelta() != (r.Base != NoOrdinal) {
		err = fmt.Errorf("%w: entry at %d is not what the index says", ErrFormat, r.Offset)
	}
	return header, n, err
}

// checkSum compares the CRC-32 of an entry that was read with that of the index.
func (r *Record) checkSum(sum uint32) error {
	if sum != r.CRC32 {
		return fmt.Errorf("%w: entry at %d fails its CRC-32", ErrFormat, r.Offset)
	}
	return nil
}

// Head returns the header of an entry. No checksum covers it yet: the read of the entry itself
// verifies it.
func (d Region) Head(
	ctx context.Context, r Record, id object.ID,
) (header pack.EntryHeader, headerSize int64, err error) {
	if err := ctx.Err(); err != nil {
		return header, 0, err
	}
	head, size := make([]byte, min(r.PackedSize, pack.EntryHeaderSizeMax)), 0
	err = ReadChecked(ctx, d.Data, head, r.Offset, func(head []byte) (err error) {
		header, size, err = r.parse(head)
		return err
	})
	if err != nil {
		return header, 0, d.Damaged(ctx, id, r.Offset, err)
	}
	return header, int64(size), nil
}

// Content returns the inflated content of an entry. With a buffer it lies there, which grows if
// need be, and else in memory of its own. Errors: [ErrCorrupt]; [ErrTooLarge] over WholeMax.
func (d Region) Content(ctx context.Context, r Record, id object.ID, buffer *[]byte) ([]byte, error) {
	entry := packedBuffers.Get().(*[]byte)
	defer packedBuffers.Put(entry)
	packed, err := d.ReadPacked(ctx, (*entry)[:0], r, id)
	*entry = packed[:0]
	if err != nil {
		return nil, err
	}
	header, payload, err := d.Parse(ctx, packed, r, id)
	if err != nil {
		return nil, err
	}
	if header.Size > WholeMax {
		return nil, ErrLargeChain
	}
	var room []byte
	if buffer != nil {
		room = (*buffer)[:0]
	}
	content, consumed, err := pack.Inflate(room, payload, header.Size)
	if err == nil && consumed != len(payload) {
		err = fmt.Errorf("%w: trailing bytes after the entry at %d", ErrFormat, r.Offset)
	}
	if err == nil && r.Base == NoOrdinal && header.Size != r.Size {
		err = fmt.Errorf("%w: entry at %d has %d bytes, not the %d of the index", ErrFormat, r.Offset, header.Size, r.Size)
	}
	if err != nil {
		return nil, d.Damaged(ctx, id, r.Offset, err)
	}
	if buffer != nil {
		*buffer = content
	}
	return content, nil
}

// CopyPacked writes the bytes of an entry from skip on. It verifies an entry of at most
// verifiedCopySize before the first write. For a larger one it returns an error after the last
// write.
func (d Region) CopyPacked(ctx context.Context, w io.Writer, r Record, id object.ID, skip int64) error {
	if r.PackedSize <= verifiedCopySize {
		buffer := packedBuffers.Get().(*[]byte)
		defer packedBuffers.Put(buffer)
		packed, err := d.ReadPacked(ctx, (*buffer)[:0], r, id)
		*buffer = packed
		if err == nil {
			_, err = w.Write(packed[skip:])
		}
		return err
	}
	sum, err := d.Stream(ctx, r, id, func(piece []byte) error {
		n := min(skip, int64(len(piece)))
		skip -= n
		_, err := w.Write(piece[n:])
		return err
	})
	if err == nil {
		err = d.CheckSum(ctx, r, id, sum)
	}
	return err
}

// packedBuffers holds the buffers of entries that CopyPacked writes.
var packedBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Stream passes an entry to visit piece by piece and returns the CRC-32 of the pieces.
func (d Region) Stream(ctx context.Context, r Record, id object.ID, visit func(piece []byte) error) (uint32, error) {
	buffer := copyBuffers.Get().(*[CopyBufferSize]byte)
	defer copyBuffers.Put(buffer)
	sum := uint32(0)
	ahead := file.NewAhead(d.Data, r.Offset+r.PackedSize)
	for done := int64(0); done < r.PackedSize; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		ahead.At(r.Offset + done)
		piece := buffer[:min(CopyBufferSize, r.PackedSize-done)]
		if err := ReadFull(ctx, d.Data, piece, r.Offset+done); err != nil {
			return 0, d.Damaged(ctx, id, r.Offset, err)
		}
		sum = crc32.Update(sum, crc32.IEEETable, piece)
		done += int64(len(piece))
		if err := visit(piece); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// CheckSum compares what [Region.Stream] has returned with the index. Errors: [ErrCorrupt],
// [ErrCopyDamaged].
func (d Region) CheckSum(ctx context.Context, r Record, id object.ID, sum uint32) error {
	return d.passedOn(ctx, id, r, r.checkSum(sum))
}

// passedOn reports an entry that failed a check, if err is not nil, after a part of it was passed
// on. Of a copy it reads the entry once more, to tell damage of the copy from that of the entry.
func (d Region) passedOn(ctx context.Context, id object.ID, r Record, err error) error {
	if err == nil {
		return nil
	}
	if isDamage(err) && file.Forget(d.Data, r.Offset, r.PackedSize) {
		sum, err := d.Stream(ctx, r, id, func([]byte) error { return nil })
		if err != nil {
			return err
		}
		if r.checkSum(sum) == nil {
			return fmt.Errorf("read layer %s: entry at %d: %w", d.Layer, r.Offset, ErrCopyDamaged)
		}
	}
	return d.Damaged(ctx, id, r.Offset, err)
}

// Damaged turns a failed check of the entry at an offset into a counted [CorruptError]. If id is
// zero, it looks up which object lies there.
func (d Region) Damaged(ctx context.Context, id object.ID, offset int64, err error) error {
	if d.segment.File == nil {
		return d.env.Damage.Wrap("", d.Layer, id, err)
	}
	if id.IsZero() {
		id = d.segment.objectAt(context.WithoutCancel(ctx), offset)
	}
	return d.env.Damage.Wrap(d.segment.FileName(), d.Layer, id, err)
}
