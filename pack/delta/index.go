package delta

import (
	"encoding/binary"
	"math/bits"
)

const (
	// blockSize is the length of the pieces of the base that are looked up; shorter matches are not
	// found.
	blockSize = 16
	// blocksMax bounds an index: a larger base is indexed more sparsely, every n-th block.
	blocksMax = 1 << 20
	// chainMax bounds the number of places tried for one hash, so that repetitive bases take linear
	// time.
	chainMax = 24
	// offsetMax is where copy instructions end.
	offsetMax = 1<<32 - 1
)

// Index finds places in a base where pieces of a target occur. It is made once for each base and
// used for many targets.
//
// It keeps the base, and 9 to 13 bytes for every 16 bytes of base, 13 MiB at most. Once made it may
// be used concurrently.
type Index struct {
	base   []byte
	heads  []uint32 // by hash: 1 + number of the first block, 0 for none
	next   []uint32 // by block: the next block of the same hash, numbered likewise
	filter []uint64 // a bit by hash: rules out most places of the target without a look at heads
	step   int      // bytes between blocks
	shift  uint     // makes a hash an index into heads
}

// filterBits is by how many bits the index into filter is longer than that into heads: 6 % of its
// bits are set then at most.
const filterBits = 3

// NewIndex returns an index of base, which must not change while the index is used.
func NewIndex(base []byte) *Index {
	x := &Index{}
	x.Reset(base)
	return x
}

// Reset makes x the index of another base and reuses its memory.
func (x *Index) Reset(base []byte) {
	x.base = base
	reachable := min(len(base), offsetMax)
	x.step = blockSize
	for reachable/x.step > blocksMax {
		x.step += blockSize
	}
	blocks := reachable / x.step
	if reachable < blockSize {
		blocks = 0
	}
	headBits := max(bits.Len(uint(blocks)), 4)
	x.shift = uint(64 - headBits)
	x.heads = resized(x.heads, 1<<headBits)
	x.next = resized(x.next, blocks)
	x.filter = resized(x.filter, 1<<(headBits+filterBits)/64)

	// From back to front, so that each chain begins with its first place. Of a run of equal blocks
	// only the first is kept: a match there extends over the whole run.
	previous := uint64(0)
	for block := blocks - 1; block >= 0; block-- {
		hash := hashBlock(base[block*x.step:])
		head := &x.heads[hash>>x.shift]
		if block < blocks-1 && hash == previous && *head == uint32(block+2) {
			x.next[block] = x.next[block+1]
		} else {
			x.next[block] = *head
		}
		*head = uint32(block + 1)
		bit := hash >> (x.shift - filterBits)
		x.filter[bit/64] |= 1 << (bit % 64)
		previous = hash
	}
}

// resized returns a zeroed slice of n elements, in the memory of s if it suffices.
func resized[T uint32 | uint64](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// hashBlock mixes the first 16 bytes of b; its high bits are the good ones. Two loads and two
// multiplications, which do not wait for those of the position before, cost less than updating a
// rolling hash.
func hashBlock(b []byte) uint64 {
	_ = b[blockSize-1]
	low, high := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return (low ^ bits.RotateLeft64(high*0x9e3779b97f4a7c15, 29)) * 0xd6e8feb86659fd93
}

// skip returns the first place from at on where target may match, or where it has no whole block
// any more, but at most end.
func (x *Index) skip(target []byte, at, end int) int {
	shift := (x.shift - filterBits) & 63
	for end = min(end, len(target)-blockSize+1); at < end; at++ {
		bit := hashBlock(target[at:]) >> shift
		if x.filter[bit/64]>>(bit%64)&1 != 0 {
			break
		}
	}
	return at
}

// longest returns the longest match of want in the base, of at least blockSize bytes: where it
// begins, and its length or 0.
func (x *Index) longest(want []byte) (offset, length int) {
	chain := 0
	for block := x.heads[hashBlock(want)>>x.shift]; block != 0 && chain < chainMax; block = x.next[block-1] {
		chain++
		place := int(block-1) * x.step
		candidate := x.base[place:]
		if length > 0 && (len(candidate) <= length || len(want) <= length || candidate[length] != want[length]) {
			continue
		}
		if n := matchLength(candidate, want); n >= blockSize && n > length {
			offset, length = place, n
			if length >= lengthEnough {
				break
			}
		}
	}
	return offset, length
}

// lengthEnough is the length of a match at which the search ends.
const lengthEnough = 4096

// matchLength returns how many bytes a and b have in common at their beginning.
func matchLength(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if diff := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); diff != 0 {
			return i + bits.TrailingZeros64(diff)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// matchLengthBack returns how many bytes a and b have in common at their end.
func matchLengthBack(a, b []byte) int {
	n := min(len(a), len(b))
	a, b = a[len(a)-n:], b[len(b)-n:]
	i := n
	for ; i >= 8; i -= 8 {
		if diff := binary.LittleEndian.Uint64(a[i-8:]) ^ binary.LittleEndian.Uint64(b[i-8:]); diff != 0 {
			return n - i + bits.LeadingZeros64(diff)/8
		}
	}
	for i > 0 && a[i-1] == b[i-1] {
		i--
	}
	return n - i
}
