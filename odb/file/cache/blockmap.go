package cache

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"sync/atomic"
)

const (
	// blockBytes is the size of a block.
	blockBytes = 1 << 20
	// diskBytes is what the disk takes for a piece of a file at least.
	diskBytes = 4 << 10
	// mapMagic ends the map of a file; its last byte is the version.
	mapMagic = "PHblock1"
	// mapTailBytes is the size of what follows the bits.
	mapTailBytes = 8 + 4 + len(mapMagic)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// blockMap says which blocks of a file are there. Its methods may be called concurrently.
type blockMap struct {
	size  int64 // of the file
	count int64 // of blocks
	words []atomic.Uint64
}

func newBlockMap(size int64) blockMap {
	count := countBlocks(size)
	return blockMap{size: size, count: count, words: make([]atomic.Uint64, (count+63)/64)}
}

// countBlocks returns the number of blocks of a file.
func countBlocks(size int64) int64 { return (size + blockBytes - 1) / blockBytes }

// has reports whether a block is there.
func (m *blockMap) has(block int64) bool { return m.words[block/64].Load()&(1<<(block%64)) != 0 }

// set notes that a block is there.
func (m *blockMap) set(block int64) { m.words[block/64].Or(1 << (block % 64)) }

// clear notes that the blocks from first to last are not there, and returns how much of the disk
// they took.
func (m *blockMap) clear(first, last int64) (bytes int64) {
	for block := first; block <= last; block++ {
		if bit := uint64(1) << (block % 64); m.words[block/64].And(^bit)&bit != 0 {
			bytes += m.cost(block)
		}
	}
	return bytes
}

// length returns the size of a block: the last one may be short.
func (m *blockMap) length(block int64) int64 { return min(blockBytes, m.size-block*blockBytes) }

// cost returns how much of the disk a block takes.
func (m *blockMap) cost(block int64) int64 {
	return (m.length(block) + diskBytes - 1) / diskBytes * diskBytes
}

// present returns how many of size bytes from offset on are there without a gap.
func (m *blockMap) present(offset, size int64) int64 {
	end := offset + size
	for at := offset; at < end; at = (at/blockBytes + 1) * blockBytes {
		if !m.has(at / blockBytes) {
			return at - offset
		}
	}
	return size
}

// end returns the end of the last block that is there.
func (m *blockMap) end() int64 {
	for i := len(m.words) - 1; i >= 0; i-- {
		if word := m.words[i].Load(); word != 0 {
			return min(m.size, (int64(i)*64+int64(bits.Len64(word)))*blockBytes)
		}
	}
	return 0
}

// bytes returns how much of the disk the blocks take that are there.
func (m *blockMap) bytes() int64 {
	var bytes int64
	for block := range m.count {
		if m.has(block) {
			bytes += m.cost(block)
		}
	}
	return bytes
}

// fullCost returns how much of the disk all blocks take.
func (m *blockMap) fullCost() int64 {
	var bytes int64
	for block := range m.count {
		bytes += m.cost(block)
	}
	return bytes
}

// fill notes that all blocks are there.
func (m *blockMap) fill() {
	for block := range m.count {
		m.set(block)
	}
}

// complete reports whether all blocks are there.
func (m *blockMap) complete() bool {
	for i := range m.words {
		full := ^uint64(0)
		if rest := m.count - int64(i)*64; rest < 64 {
			full = 1<<rest - 1
		}
		if m.words[i].Load() != full {
			return false
		}
	}
	return true
}

// append appends the map of the file of a name as it is written behind the file.
func (m *blockMap) append(dst []byte, name string) []byte {
	begin := len(dst)
	for i := range m.words {
		dst = binary.BigEndian.AppendUint64(dst, m.words[i].Load())
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.size))
	sum := crc32.Update(crc32.Checksum(dst[begin:], castagnoli), castagnoli, []byte(name))
	dst = binary.BigEndian.AppendUint32(dst, sum)
	return append(dst, mapMagic...)
}

// parseTail returns the size of the file of whose map tail is the end.
func parseTail(tail []byte) (size int64, ok bool) {
	if len(tail) < mapTailBytes || string(tail[len(tail)-len(mapMagic):]) != mapMagic {
		return 0, false
	}
	size = int64(binary.BigEndian.Uint64(tail[len(tail)-mapTailBytes:]))
	return size, size >= 0
}

// parseMap returns the map of the file of a name that append has encoded.
func parseMap(text []byte, name string) (m blockMap, ok bool) {
	size, ok := parseTail(text)
	if !ok || int64(len(text)) != mapBytes(size) {
		return blockMap{}, false
	}
	summed := len(text) - 4 - len(mapMagic)
	sum := crc32.Update(crc32.Checksum(text[:summed], castagnoli), castagnoli, []byte(name))
	if binary.BigEndian.Uint32(text[summed:]) != sum {
		return blockMap{}, false
	}
	m = newBlockMap(size)
	for i := range m.words {
		m.words[i].Store(binary.BigEndian.Uint64(text[8*i:]))
	}
	return m, true
}

// mapBytes returns the size of the map of a file.
func mapBytes(size int64) int64 { return (countBlocks(size)+63)/64*8 + int64(mapTailBytes) }
