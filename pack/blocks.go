package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/flate"

	"packhorse/pack/invariants"
)

// BlockSize is the length of the pieces of content that a stream of [Blocks] is made of; the last
// may be shorter.
const BlockSize = 1 << 20

// Block is one piece of content, encoded on its own.
type Block struct {
	Packed []byte // deflate blocks that end at a byte boundary and are not the last of a stream
	Size   int    // of the content
	Adler  uint32 // of the content
	Stored bool   // Packed holds the content as it is
}

// EncodeBlock encodes up to [BlockSize] bytes of content. Content that compression does not make
// shorter is stored. Packed is appended to dst; data is only read and must not overlap it. It may
// be called concurrently for the blocks of one stream.
func EncodeBlock(dst, data []byte, level int) Block {
	if len(data) > BlockSize {
		panic("pack: block too large")
	}
	block := encodeBlock(dst, data, level)
	if invariants.Enabled { // docs/invariants.md 10
		content, err := DecodeBlock(nil, block.Packed, block.Size, block.Adler)
		invariants.Check(err == nil && bytes.Equal(content, data),
			"pack: a block of %d bytes does not inflate alone: %v", len(data), err)
	}
	return block
}

func encodeBlock(dst, data []byte, level int) Block {
	start := len(dst)
	dst = appendDeflated(dst, data, level)
	adler := updateAdler(1, data)
	if len(dst)-start >= storedSize(len(data)) {
		return StoreBlock(dst[:start], data, adler)
	}
	return Block{Packed: dst[start:], Size: len(data), Adler: adler}
}

// StoreBlock makes an uncompressed block of data, whose checksum is adler. Packed is appended to
// dst.
func StoreBlock(dst, data []byte, adler uint32) Block {
	start := len(dst)
	return Block{Packed: appendStored(dst, data)[start:], Size: len(data), Adler: adler, Stored: true}
}

func appendDeflated(dst, data []byte, level int) []byte {
	d := deflaterPool(level).Get().(*deflater)
	defer deflaterPool(level).Put(d)
	return d.deflate(dst, data, false)
}

const (
	storedMax        = 1<<16 - 1 // content of one stored block
	storedHeaderSize = 5
)

// storedSize returns the length of size bytes in stored blocks.
func storedSize(size int) int { return size + (size+storedMax-1)/storedMax*storedHeaderSize }

func appendStored(dst, data []byte) []byte {
	for len(data) > 0 {
		piece := data[:min(len(data), storedMax)]
		dst = append(dst, 0)
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(piece)))
		dst = binary.LittleEndian.AppendUint16(dst, ^uint16(len(piece)))
		dst = append(dst, piece...)
		data = data[len(piece):]
	}
	return dst
}

// BlockTable has the positions of the blocks of a stream.
type BlockTable struct {
	Size int64 // of the whole content
	Rows []BlockRow
	End  int64 // offset behind the last block
}

// BlockRow is one block of a [BlockTable].
type BlockRow struct {
	Offset int64  // from the start of the zlib stream
	Adler  uint32 // of the block's content
}

// Locate returns the bytes of the zlib stream that hold block index, and the size of its content.
func (t *BlockTable) Locate(index int) (offset, packedSize int64, size int) {
	end, size := t.End, BlockSize
	if index+1 < len(t.Rows) {
		end = t.Rows[index+1].Offset
	} else {
		size = int(t.Size - int64(index)*BlockSize)
	}
	offset = t.Rows[index].Offset
	return offset, end - offset, size
}

// Blocks assembles a zlib stream of blocks that can be inflated independently:
//
//	78 01 | block 0 | block 1 | ... | 03 00 (an empty last block) | Adler-32 of all, 4 B
//
// Encode with [EncodeBlock], in parallel if you like, and pass the blocks to Append in order. The
// zero value is ready; for one goroutine.
type Blocks struct {
	table  BlockTable
	adler  uint32
	offset int64 // bytes of the stream so far
}

// Append appends the stream's next bytes to dst. Every block but the last has [BlockSize] bytes of
// content.
func (b *Blocks) Append(dst []byte, block Block) []byte {
	if b.table.Size%BlockSize != 0 {
		panic("pack: block behind a short one")
	}
	start := len(dst)
	dst = b.begin(dst)
	offset := b.offset + int64(len(dst)-start)
	dst = append(dst, block.Packed...)
	b.offset += int64(len(dst) - start)
	b.table.Rows = append(b.table.Rows, BlockRow{Offset: offset, Adler: block.Adler})
	b.table.Size += int64(block.Size)
	b.table.End = b.offset
	b.adler = combineAdler(b.adler, block.Adler, int64(block.Size))
	return dst
}

// begin appends the zlib header once.
func (b *Blocks) begin(dst []byte) []byte {
	if b.offset > 0 {
		return dst
	}
	b.adler = 1
	return append(dst, zlibHeader(LevelFast)...)
}

// Finish appends the end of the stream to dst.
func (b *Blocks) Finish(dst []byte) []byte {
	start := len(dst)
	dst = b.begin(dst)
	if len(b.table.Rows) == 0 {
		b.table.End = zlibHeaderSize
	}
	if invariants.Enabled {
		rows, table := int64(len(b.table.Rows)), &b.table
		invariants.Check(rows == (table.Size+BlockSize-1)/BlockSize, "pack: %d blocks of %d bytes", rows, table.Size)
		invariants.Check(table.End == b.offset+int64(len(dst)-start),
			"pack: blocks end at %d of %d bytes", table.End, b.offset)
	}
	dst = append(dst, "\x03\x00"...)
	dst = binary.BigEndian.AppendUint32(dst, b.adler)
	b.offset += int64(len(dst) - start)
	return dst
}

// Offset returns how many bytes of the stream Append and Finish have made.
func (b *Blocks) Offset() int64 { return b.offset }

// Table returns the positions of the blocks; it is complete after Finish.
func (b *Blocks) Table() BlockTable { return b.table }

// DecodeBlock appends to dst the content of one block; the [BlockTable] has its packed bytes, size
// and checksum. Errors: [ErrCorrupt].
func DecodeBlock(dst, packed []byte, size int, adler uint32) ([]byte, error) {
	if size < 0 || size > BlockSize {
		return dst, corrupt("block of %d bytes", size)
	}
	m := memoryInflaters.Get().(*memoryInflater)
	defer memoryInflaters.Put(m)
	m.src.Reset(packed)
	defer m.src.Reset(nil)
	if err := m.flate.(flate.Resetter).Reset(&m.src, nil); err != nil {
		return dst, err
	}
	content, err := readBlock(dst, m.flate, size)
	if err != nil {
		return dst, err
	}
	if m.src.Len() > 0 || updateAdler(1, content[len(dst):]) != adler {
		return dst, corrupt("block checksum mismatch")
	}
	return content, nil
}

// readBlock appends size bytes of src, a deflate stream that breaks off behind them.
func readBlock(dst []byte, src io.Reader, size int) ([]byte, error) {
	content, err := readExactly(dst, src, int64(size)+1)
	if len(content)-len(dst) == size && errors.Is(err, io.ErrUnexpectedEOF) {
		return content, nil
	}
	if err == nil || errors.Is(err, errSize) {
		return dst, errSize
	}
	return dst, inflateError(err)
}
