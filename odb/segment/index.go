package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"sort"

	"packhorse/pack/object"
)

// Bucket returns the range of ordinals of the IDs that share the first byte of id: first <= ordinal
// < end.
func (g *File) Bucket(id object.ID) (first, end int) {
	if id[0] > 0 {
		first = int(g.fanout[id[0]-1])
	}
	return first, int(g.fanout[id[0]])
}

// Lookup returns the ordinal of id, or false if the file does not hold it.
//
// IDs are spread evenly. So Lookup guesses the block of id by interpolation within the bucket of
// its first byte, and is right most of the time. A wrong guess halves the range, so chosen IDs
// cannot make a lookup slow.
func (g *File) Lookup(ctx context.Context, id object.ID) (ordinal uint32, ok bool, err error) {
	first, end := g.Bucket(id)
	if first == end {
		return 0, false, nil
	}
	perBlock := g.sections[SectionIDs].perBlock()
	low, high := first/perBlock, (end-1)/perBlock
	n := (first + int(uint64(end-first)*uint64(binary.BigEndian.Uint16(id[1:]))>>16)) / perBlock
	for {
		block, err := g.block(ctx, SectionIDs, n)
		if err != nil {
			return 0, false, err
		}
		switch {
		case n > low && bytes.Compare(id[:], block[:object.IDSize]) < 0:
			high = n - 1
		case n < high && bytes.Compare(id[:], block[len(block)-object.IDSize:]) > 0:
			low = n + 1
		default:
			base := n * perBlock
			i, ok := searchIDs(block, max(first-base, 0), min(end-base, len(block)/object.IDSize), id)
			return uint32(base + i), ok, nil
		}
		if low > high {
			return 0, false, nil // between the last ID of a block and the first of the next
		}
		n = (low + high) / 2
	}
}

// searchIDs returns the index of id among the sorted IDs of a block, from first on and below end.
func searchIDs(block []byte, first, end int, id object.ID) (int, bool) {
	key := binary.BigEndian.Uint64(id[:])
	for first < end {
		middle := int(uint(first+end) >> 1)
		at := block[middle*object.IDSize:]
		order := 0
		if candidate := binary.BigEndian.Uint64(at); candidate != key {
			if candidate < key {
				order = -1
			} else {
				order = 1
			}
		} else {
			order = bytes.Compare(at[8:object.IDSize], id[8:])
		}
		switch {
		case order == 0:
			return middle, true
		case order < 0:
			first = middle + 1
		default:
			end = middle
		}
	}
	return first, false
}

// LookupMany calls visit for those of the sorted ids that the file holds, in order, with their
// index in ids and their ordinal. It reads each block once. An error of visit ends it.
func (g *File) LookupMany(ctx context.Context, ids []object.ID, visit func(index int, ordinal uint32) error) error {
	perBlock := g.sections[SectionIDs].perBlock()
	for i := 0; i < len(ids); {
		n, ok, err := g.blockOf(ctx, ids[i])
		if err != nil {
			return err
		}
		if !ok {
			i++
			continue
		}
		block, err := g.block(ctx, SectionIDs, n)
		if err != nil {
			return err
		}
		last := object.ID(block[len(block)-object.IDSize:])
		end := i + sort.Search(len(ids)-i, func(k int) bool { return ids[i+k].Compare(last) > 0 })
		for from := 0; i < end; i++ {
			if from, ok = searchIDs(block, from, len(block)/object.IDSize, ids[i]); !ok {
				continue
			}
			if err := visit(i, uint32(n*perBlock+from)); err != nil {
				return err
			}
		}
	}
	return nil
}

// blockOf returns the first block in the bucket of id whose last ID is not below id; false if there
// is none.
func (g *File) blockOf(ctx context.Context, id object.ID) (int, bool, error) {
	first, end := g.Bucket(id)
	if first == end {
		return 0, false, nil
	}
	perBlock := g.sections[SectionIDs].perBlock()
	var err error
	low, high := first/perBlock, (end-1)/perBlock
	n := low + sort.Search(high-low+1, func(i int) bool {
		var block []byte
		if err == nil {
			block, err = g.block(ctx, SectionIDs, low+i)
		}
		return err != nil || bytes.Compare(id[:], block[len(block)-object.IDSize:]) <= 0
	})
	return n, n <= high, err
}

// ID returns the ID at an ordinal.
func (g *File) ID(ctx context.Context, ordinal uint32) (object.ID, error) {
	item, err := g.Item(ctx, SectionIDs, int(ordinal))
	if err != nil {
		return object.ZeroID, err
	}
	return object.ID(item), nil
}

// Scan calls visit in order with the IDs from low to high, both included, until visit returns
// false.
func (g *File) Scan(ctx context.Context, low, high object.ID, visit func(object.ID) bool) error {
	first, end := g.Bucket(low)
	var err error
	start := first + sort.Search(end-first, func(i int) bool {
		var at object.ID
		if err == nil {
			at, err = g.ID(ctx, uint32(first+i))
		}
		return err != nil || at.Compare(low) >= 0
	})
	for i := start; i < g.Count && err == nil; i++ {
		var at object.ID
		if at, err = g.ID(ctx, uint32(i)); err != nil || at.Compare(high) > 0 || !visit(at) {
			break
		}
	}
	return err
}

// SortIDs sorts ids in place and removes repetitions, as LookupMany requires.
func SortIDs(ids []object.ID) []object.ID {
	sortIDs(ids)
	return slices.Compact(ids)
}

// sortIDs sorts ids. Many of them are first parted by their first bytes, which are evenly spread.
func sortIDs(ids []object.ID) {
	const partedMin = 512
	if len(ids) < partedMin {
		slices.SortFunc(ids, object.ID.Compare)
		return
	}
	var next, ends [256]int
	for i := range ids {
		ends[ids[i][0]]++
	}
	for b := 1; b < len(ends); b++ {
		next[b] = ends[b-1]
		ends[b] += ends[b-1]
	}
	for b := range ends {
		start := 0
		if b > 0 {
			start = ends[b-1]
		}
		for next[b] < ends[b] {
			at := next[b]
			for first := ids[at][0]; int(first) != b; first = ids[at][0] {
				ids[at], ids[next[first]] = ids[next[first]], ids[at]
				next[first]++
			}
			next[b]++
		}
		if part := ids[start:ends[b]]; len(part) <= insertedMax {
			insertIDs(part)
		} else {
			slices.SortFunc(part, object.ID.Compare)
		}
	}
}

// insertedMax is the number of IDs up to which insertion is the fastest sort.
const insertedMax = 64

// insertIDs sorts few IDs.
func insertIDs(ids []object.ID) {
	for i := 1; i < len(ids); i++ {
		id, at := ids[i], i
		for at > 0 && bytes.Compare(id[:], ids[at-1][:]) < 0 {
			ids[at] = ids[at-1]
			at--
		}
		ids[at] = id
	}
}
