package lines

import (
	"bytes"
	"hash/maphash"
	"sort"

	"packhorse/pack/object"
)

// SplitNear is [Split] for one of several versions of a file that are compared with each other.
// What data has in common with near at the beginning and at the end is not divided again, and
// [Diff] hashes no line of the result. near may be any text, and is only read. Beside data, which
// the result keeps, it takes eight bytes a line.
func SplitNear(data []byte, near Text) Text {
	if len(data) == 0 || len(data) > SizeMax {
		return Split(data)
	}
	start, end := near.linesOf(data)
	from, to, shift := 0, len(data), len(data)-len(near.data) // what is to be divided
	if start > 0 {
		from = int(near.offsets[start])
	}
	if end < near.Count() {
		to = int(near.offsets[end]) + shift
	}
	room := start + bytes.Count(data[from:to], newline) + 1 + near.Count() - end
	t := Text{data: data, offsets: make([]int32, 0, room+1), hashes: make([]uint32, 0, room)}
	t.offsets = append(t.offsets, 0)
	if start > 0 {
		t.offsets = append(t.offsets, near.offsets[1:start+1]...)
		t.hashes = near.appendHashes(t.hashes, 0, start)
	}
	for at := from; at < to; {
		n := bytes.IndexByte(data[at:to], '\n')
		if n < 0 {
			n = to - at - 1
		}
		t.hashes = append(t.hashes, hashOf(data[at:at+n+1]))
		at += n + 1
		t.offsets = append(t.offsets, int32(at))
	}
	if end < near.Count() {
		for _, offset := range near.offsets[end+1:] {
			t.offsets = append(t.offsets, offset+int32(shift))
		}
		t.hashes = near.appendHashes(t.hashes, end, near.Count())
	}
	return t
}

// linesOf finds the lines of t that data has as well, at its beginning and at its end: those before
// start, and those from end on.
func (t Text) linesOf(data []byte) (start, end int) {
	count := t.Count()
	if count == 0 {
		return 0, 0
	}
	prefix := object.CommonPrefix(t.data, data)
	start = sort.Search(count, func(i int) bool { return int(t.offsets[i+1]) > prefix })
	if start > 0 && t.data[t.offsets[start]-1] != '\n' {
		start-- // the last line may go on in data
	}
	from := int(t.offsets[start])
	suffix := object.CommonSuffix(t.data[from:], data[from:])
	// The line feed before a common line is common, too.
	end = start + sort.Search(count-start, func(i int) bool { return int(t.offsets[start+i]) > len(t.data)-suffix })
	return start, end
}

// appendHashes appends the hashes of the lines from an index on up to another.
func (t Text) appendHashes(to []uint32, start, end int) []uint32 {
	if t.hashes != nil {
		return append(to, t.hashes[start:end]...)
	}
	for i := start; i < end; i++ {
		to = append(to, hashOf(t.Line(i)))
	}
	return to
}

// seed is of this process, so that nobody can make lines whose hashes are alike.
var seed = maphash.MakeSeed()

func hashOf(line []byte) uint32 { return uint32(maphash.Bytes(seed, line)) }

// hash returns the hash of the line of an index.
func (t Text) hash(index int) uint32 {
	if t.hashes != nil {
		return t.hashes[index]
	}
	return hashOf(t.Line(index))
}
