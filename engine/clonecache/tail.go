package clonecache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A file of the cache:
//
//	pack
//	CRC-32C of each block of 256 KiB of the pack, 4 bytes each
//	"PHclone1"
//	key              32 bytes
//	size of the pack  8 bytes
//	CRC-32C of all behind the pack so far, 4 bytes
//
// Numbers are big-endian.
const (
	blockSize  = 256 << 10
	tailMagic  = "PHclone1"
	footerSize = len(tailMagic) + len(Key{}) + 8 + 4
	sumSize    = 4
)

// errDamaged says that a file is missing or failed a check.
var errDamaged = errors.New("clonecache: damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tail is the part of a file behind the pack.
type tail struct {
	size int64 // of the pack
	sums []uint32
}

// encode returns the bytes behind the pack.
func (t *tail) encode(key Key) []byte {
	b := make([]byte, 0, len(t.sums)*sumSize+footerSize)
	for _, sum := range t.sums {
		b = binary.BigEndian.AppendUint32(b, sum)
	}
	b = append(b, tailMagic...)
	b = append(b, key[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.size))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readTail reads the tail of a file of fileSize bytes, which must be that of key. Errors:
// errDamaged.
func readTail(r io.ReaderAt, fileSize int64, key Key) (*tail, error) {
	if fileSize < int64(footerSize) {
		return nil, fmt.Errorf("%w: %d bytes are too few", errDamaged, fileSize)
	}
	footer := make([]byte, footerSize)
	if err := readFull(r, footer, fileSize-int64(footerSize)); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint64(footer[footerSize-12:]))
	if string(footer[:len(tailMagic)]) != tailMagic || Key(footer[len(tailMagic):footerSize-12]) != key || size < 0 ||
		size > fileSize {
		return nil, fmt.Errorf("%w: its trailer is not that of the pack", errDamaged)
	}
	count := (size + blockSize - 1) / blockSize
	if size+count*sumSize+int64(footerSize) != fileSize {
		return nil, fmt.Errorf("%w: %d bytes for a pack of %d", errDamaged, fileSize, size)
	}
	b := make([]byte, fileSize-size)
	if err := readFull(r, b, size); err != nil {
		return nil, err
	}
	end := len(b) - sumSize
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return nil, fmt.Errorf("%w: checksum of its end", errDamaged)
	}
	t := &tail{size: size, sums: make([]uint32, count)}
	for i := range t.sums {
		t.sums[i] = binary.BigEndian.Uint32(b[i*sumSize:])
	}
	return t, nil
}

// blocks reads the pack block by block into buffer, which holds one, and gives each to use when it
// has passed its check. Errors: errDamaged, and that of use.
func (t *tail) blocks(r io.ReaderAt, buffer []byte, use func([]byte) error) error {
	for i, sum := range t.sums {
		offset := int64(i) * blockSize
		block := buffer[:min(blockSize, t.size-offset)]
		if err := readFull(r, block, offset); err != nil {
			return err
		}
		if crc32.Checksum(block, castagnoli) != sum {
			return fmt.Errorf("%w: checksum of the block at %d", errDamaged, offset)
		}
		if err := use(block); err != nil {
			return err
		}
	}
	return nil
}

// readFull fills p from offset. Errors: errDamaged.
func readFull(r io.ReaderAt, p []byte, offset int64) error {
	if n, err := r.ReadAt(p, offset); n < len(p) {
		return fmt.Errorf("%w: %d bytes at %d: %w", errDamaged, len(p), offset, err)
	}
	return nil
}

// summer computes the checksums of blocks while a pack is written.
type summer struct {
	sums []uint32
	fill int // of the last block
}

func (s *summer) write(p []byte) {
	for len(p) > 0 {
		if s.fill == 0 {
			s.sums = append(s.sums, 0)
		}
		n := min(len(p), blockSize-s.fill)
		last := &s.sums[len(s.sums)-1]
		*last = crc32.Update(*last, castagnoli, p[:n])
		s.fill = (s.fill + n) % blockSize
		p = p[n:]
	}
}
