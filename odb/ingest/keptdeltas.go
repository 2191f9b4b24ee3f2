package ingest

import (
	"slices"
)

// keptDeltas are small deltas that a lane could not resolve. They are kept inflated, because
// inflating them again would cost more than the rest of their processing.
type keptDeltas struct {
	ordinals []uint32 // ascending
	starts   []uint32 // in arena, of each
	arena    []byte
}

// keptDeltaSizeMax is the size in bytes of the largest delta that is kept.
const keptDeltaSizeMax = 1 << 10

// keep copies the delta at ordinal, which is larger than those before, unless the deltas would then
// exceed bytesMax bytes.
func (k *keptDeltas) keep(ordinal uint32, delta []byte, bytesMax int64) {
	const perDelta = 8
	if len(delta) > keptDeltaSizeMax || int64(len(k.arena)+len(delta)+perDelta*len(k.ordinals)) > bytesMax {
		return
	}
	k.ordinals = append(k.ordinals, ordinal)
	k.starts = append(k.starts, uint32(len(k.arena)))
	k.arena = append(k.arena, delta...)
}

// get returns the delta at ordinal.
func (k *keptDeltas) get(ordinal uint32) ([]byte, bool) {
	i, ok := slices.BinarySearch(k.ordinals, ordinal)
	if !ok {
		return nil, false
	}
	end := uint32(len(k.arena))
	if i+1 < len(k.starts) {
		end = k.starts[i+1]
	}
	return k.arena[k.starts[i]:end], true
}
