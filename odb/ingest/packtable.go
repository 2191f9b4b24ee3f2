package ingest

import (
	"slices"

	"packhorse/pack"
)

// packTable holds the state of each entry of a pack by ordinal, the entry's index in the order of
// the pack. Its columns take 17 bytes an entry, since there may be millions.
type packTable struct {
	offsets []int64  // of the entries; after reading, also the end of the last one
	crcs    []uint32 // IEEE, of the entry as packed
	// ordinal of the delta base; segment.NoOrdinal for a whole entry, or while the base, which is
	// named by ID, is unknown.
	bases  []uint32
	states []entryState
	deltas int
}

// entryState is the kind of an entry, and the flags below.
type entryState uint8

const (
	stateKind entryState = 0x07
	// stateLane is the lane (see [lanes]) that examines the entry's delta family while the pack is
	// read.
	stateLane      entryState = 0x38
	stateLaneShift entryState = 3
	// stateDone marks an entry whose object has been hashed, checked and added to the index.
	stateDone entryState = 0x80
)

// laneMax is the number of lanes that stateLane can distinguish.
const laneMax = 8

func (s entryState) kind() pack.EntryKind { return pack.EntryKind(s & stateKind) }
func (s entryState) done() bool           { return s&stateDone != 0 }
func (s entryState) lane() int            { return int(s & stateLane >> stateLaneShift) }

func (t *packTable) count() int { return len(t.states) }

// has reports whether an ordinal is that of an entry.
func (t *packTable) has(ordinal uint32) bool { return int(ordinal) < t.count() }

// add appends an entry whose content has been read.
func (t *packTable) add(e *pack.Entry, base uint32, lane int) {
	t.offsets = append(t.offsets, e.Offset)
	t.crcs = append(t.crcs, e.CRC32)
	t.bases = append(t.bases, base)
	t.states = append(t.states, entryState(e.Kind)|entryState(lane)<<stateLaneShift)
	if e.Kind.IsDelta() {
		t.deltas++
	}
}

// end records the end of the last entry.
func (t *packTable) end(offset int64) { t.offsets = append(t.offsets, offset) }

// packedSize returns the size in bytes of an entry, header included. It needs end.
func (t *packTable) packedSize(ordinal uint32) int64 {
	return t.offsets[ordinal+1] - t.offsets[ordinal]
}

// at returns the ordinal of the entry at an offset.
func (t *packTable) at(offset int64) (uint32, bool) {
	i, ok := slices.BinarySearch(t.offsets[:t.count()], offset)
	return uint32(i), ok
}

// family is the children of every entry: the deltas that apply to it.
type family struct {
	starts   []uint32 // children[starts[i]:starts[i+1]] are those of entry i
	children []uint32
}

// families returns the unresolved deltas, and the deltas on the way to them, by their bases. It
// omits deltas whose base is unknown or not in the pack.
func (t *packTable) families() family {
	wanted := t.wanted()
	f := family{starts: make([]uint32, t.count()+2)}
	total := 0
	for ordinal, base := range t.bases {
		if t.has(base) && wanted.has(uint32(ordinal)) {
			f.starts[base+2]++
			total++
		}
	}
	for i := 2; i < len(f.starts); i++ {
		f.starts[i] += f.starts[i-1]
	}
	f.children = make([]uint32, total)
	for ordinal, base := range t.bases {
		if t.has(base) && wanted.has(uint32(ordinal)) {
			f.children[f.starts[base+1]] = uint32(ordinal)
			f.starts[base+1]++
		}
	}
	return f
}

// of returns the children of an entry. The caller may reorder the slice.
func (f *family) of(ordinal uint32) []uint32 {
	if int(ordinal)+1 >= len(f.starts) {
		return nil
	}
	return f.children[f.starts[ordinal]:f.starts[ordinal+1]]
}

// wanted returns the entries that are not done, and all entries that they build upon.
func (t *packTable) wanted() ordinalSet {
	wanted := newOrdinalSet(t.count())
	for i, state := range t.states {
		if state.done() {
			continue
		}
		for at := uint32(i); t.has(at) && !wanted.has(at); at = t.bases[at] {
			wanted.set(at)
		}
	}
	return wanted
}

// ordinalSet is a set of ordinals, a bit each.
type ordinalSet []uint64

func newOrdinalSet(count int) ordinalSet { return make(ordinalSet, (count+63)/64) }

func (s ordinalSet) has(i uint32) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s ordinalSet) set(i uint32)      { s[i/64] |= 1 << (i % 64) }

// grown returns s with room for ordinal i.
func (s ordinalSet) grown(i uint32) ordinalSet {
	for int(i/64) >= len(s) {
		s = append(s, 0)
	}
	return s
}

// setDone marks the entries of a set.
func (t *packTable) setDone(set ordinalSet) {
	for i := range t.states {
		if i/64 < len(set) && set.has(uint32(i)) {
			t.states[i] |= stateDone
		}
	}
}
