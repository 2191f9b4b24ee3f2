package hot

import (
	"encoding/binary"
	"iter"
	"math/bits"

	"packhorse/pack/object"
)

// idFilter tells the IDs of a set from nearly all others, in one access to memory: a view looks an
// object up in layer after layer, and most of them lack it. An ID is a hash, so its bits serve
// as they are: eight bytes of it choose a word, and two bits there.
type idFilter []uint64

// newIDFilter returns a filter of so many IDs with 16 to 32 bits each; of 100 other IDs it lets one
// or two pass.
func newIDFilter(ids iter.Seq[object.ID], count int) idFilter {
	f := make(idFilter, 1<<bits.Len(uint(count/4)))
	for id := range ids {
		word, two := f.place(id)
		f[word] |= two
	}
	return f
}

// mayHave reports whether an ID may be in the set; if not, it is not.
func (f idFilter) mayHave(id object.ID) bool {
	word, two := f.place(id)
	return f[word]&two == two
}

func (f idFilter) place(id object.ID) (word int, two uint64) {
	hash := binary.LittleEndian.Uint64(id[:])
	return int(hash & uint64(len(f)-1)), 1<<(hash>>58) | 1<<(hash>>52&63)
}
