package grep

import (
	"encoding/binary"
	"math/bits"
)

// storedForm begins stored trigrams; the set follows, in words of 8 bytes, little-endian. Another
// form or another hash of trigrams gets another number, and sets of an unknown form are not used.
const storedForm = 1

// StoredTrigrams returns the trigrams of a text as [odb.Options] stores them, nothing if a search
// has to read it.
func StoredTrigrams(text []byte) []byte {
	stored := []byte{storedForm}
	if isBinary(text) {
		return stored
	}
	if hasFoldedSigns(text) {
		return nil
	}
	for _, word := range trigramsIn(text) {
		stored = binary.LittleEndian.AppendUint64(stored, word)
	}
	return stored
}

// decodeTrigrams decodes the output of [StoredTrigrams]; false for anything else.
func decodeTrigrams(stored []byte) (trigramSet, bool) {
	const wordSize = 8
	if len(stored) == 0 || stored[0] != storedForm || len(stored)%wordSize != 1 {
		return nil, false
	}
	words := stored[1:]
	if n := len(words) / wordSize; n > 0 && bits.OnesCount(uint(n)) != 1 || n > setBitsMax/64 {
		return nil, false
	}
	set := make(trigramSet, len(words)/wordSize)
	for i := range set {
		set[i] = binary.LittleEndian.Uint64(words[i*wordSize:])
	}
	return set, true
}
