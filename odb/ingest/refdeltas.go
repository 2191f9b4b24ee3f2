package ingest

import (
	"encoding/binary"
	"iter"
	"slices"
	"sync"

	"packhorse/pack/object"
)

// refDeltas are the deltas of a pack whose base is named by ID, eight bytes each: the first four
// bytes of the base's ID, then the ordinal. The rest of the ID is read from the pack when those
// bytes agree.
type refDeltas struct {
	heads []uint64 // sorted from sort on

	mu    sync.Mutex // guards taken
	taken ordinalSet // deltas whose base was found
}

func refHead(base object.ID, ordinal uint32) uint64 {
	return uint64(binary.BigEndian.Uint32(base[:]))<<32 | uint64(ordinal)
}

func (r *refDeltas) add(base object.ID, ordinal uint32) {
	r.heads = append(r.heads, refHead(base, ordinal))
}

// sort prepares the deltas of a pack of count entries for the search of their bases.
func (r *refDeltas) sort(count int) {
	slices.Sort(r.heads)
	r.taken = newOrdinalSet(count)
}

// untaken walks the deltas whose base was not found.
func (r *refDeltas) untaken() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, head := range r.heads {
			if ordinal := uint32(head); !r.taken.has(ordinal) && !yield(ordinal) {
				return
			}
		}
	}
}

// candidates returns the deltas whose base ID has the same first four bytes as base.
func (r *refDeltas) candidates(base object.ID) []uint64 {
	start, _ := slices.BinarySearch(r.heads, refHead(base, 0))
	end := start
	for end < len(r.heads) && r.heads[end]>>32 == r.heads[start]>>32 {
		end++
	}
	if start < len(r.heads) && r.heads[start]>>32 != uint64(binary.BigEndian.Uint32(base[:])) {
		return nil
	}
	return r.heads[start:end]
}

// takeRefs returns the deltas against the object id that were not taken before, and records that
// the object is at ordinal.
func (in *Ingest) takeRefs(id object.ID, ordinal uint32) (children []uint32, err error) {
	for _, head := range in.refs.candidates(id) {
		child := uint32(head)
		base, err := in.refBase(child)
		if err != nil {
			return nil, err
		}
		if base == id && in.take(child, ordinal) {
			children = append(children, child)
		}
	}
	return children, nil
}

// take assigns a base to a delta and reports whether the delta had none.
func (in *Ingest) take(child, base uint32) bool {
	in.refs.mu.Lock()
	defer in.refs.mu.Unlock()
	if in.refs.taken.has(child) {
		return false
	}
	in.refs.taken.set(child)
	in.table.bases[child] = base
	return true
}

// refBase reads the base ID of an entry that names its base by ID.
func (in *Ingest) refBase(ordinal uint32) (object.ID, error) {
	header, _, err := in.entryHeader(ordinal)
	return header.BaseID, err
}
