package object

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// CommonEntries returns the length in bytes of the whole entries at the front that two trees have in common: nearly all of two trees that
// follow each other is the same, and is passed over without a look at its entries.
func CommonEntries(a, b []byte) int {
	same, whole := commonPrefix(a, b), 0
	for {
		const modeMin = len("40000 ")
		if whole+modeMin > len(a) {
			return whole
		}
		name := bytes.IndexByte(a[whole+modeMin:], 0)
		next := whole + modeMin + name + 1 + IDSize
		if name < 0 || next > same {
			return whole
		}
		whole = next
	}
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
