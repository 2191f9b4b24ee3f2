package object

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"packhorse/pack/invariants"
)

// CommonEntries returns the length in bytes of the complete entries that trees have in common at
// their beginning. Nearly all of two successive trees is equal, and is skipped without parsing.
func CommonEntries(tree []byte, others ...[]byte) int {
	same := len(tree)
	for _, other := range others {
		same = min(same, CommonPrefix(tree, other))
	}
	whole := WholeEntries(tree[:same])
	if invariants.Enabled {
		for _, other := range others {
			invariants.Check(bytes.Equal(tree[:whole], other[:whole]), "object: entries before %d are not the same", whole)
		}
	}
	return whole
}

// WholeEntries returns the length in bytes of the complete entries at the beginning of a tree.
func WholeEntries(tree []byte) (whole int) {
	for {
		const modeMin = len("40000 ")
		if whole+modeMin > len(tree) {
			return whole
		}
		name := bytes.IndexByte(tree[whole+modeMin:], 0)
		next := whole + modeMin + name + 1 + IDSize
		if name < 0 || next > len(tree) {
			return whole
		}
		whole = next
	}
}

// OwnEntries returns the complete entries of a tree, a part of it, between those that it begins and
// those that it ends with alike another tree.
func OwnEntries(tree, other []byte) []byte {
	begin := CommonEntries(tree, other)
	alike := CommonSuffix(tree[begin:], other[begin:])
	own, others := IterTree(tree[begin:]), IterTree(other[begin:])
	for { // up to where an entry begins in both: a name may end like another entry
		left, othersLeft := len(own.Rest()), len(others.Rest())
		var more bool
		switch {
		case left == othersLeft && left <= alike:
			return tree[begin : len(tree)-left]
		case left >= othersLeft:
			more = own.Next()
		default:
			more = others.Next()
		}
		if !more {
			return tree[begin:]
		}
	}
}

// compareBlock is the number of bytes compared at a time.
const compareBlock = 1024

// CommonPrefix returns how many bytes a and b begin with alike.
func CommonPrefix(a, b []byte) int {
	size := min(len(a), len(b))
	if size > 0 && &a[0] == &b[0] {
		return size
	}
	n := 0
	for n+compareBlock <= size && bytes.Equal(a[n:n+compareBlock], b[n:n+compareBlock]) {
		n += compareBlock
	}
	for ; n+8 <= size; n += 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
	}
	for n < size && a[n] == b[n] {
		n++
	}
	return n
}

// CommonSuffix returns how many bytes a and b end with alike.
func CommonSuffix(a, b []byte) int {
	size := min(len(a), len(b))
	a, b = a[len(a)-size:], b[len(b)-size:]
	end := size
	for end >= compareBlock && bytes.Equal(a[end-compareBlock:end], b[end-compareBlock:end]) {
		end -= compareBlock
	}
	for ; end >= 8; end -= 8 {
		if x := binary.LittleEndian.Uint64(a[end-8:]) ^ binary.LittleEndian.Uint64(b[end-8:]); x != 0 {
			return size - end + bits.LeadingZeros64(x)/8
		}
	}
	for end > 0 && a[end-1] == b[end-1] {
		end--
	}
	return size - end
}
