package lines

import (
	"bytes"
	"slices"
	"sort"

	"packhorse/pack/object"
)

// SizeMax is the largest content in bytes that may be divided into lines, as in git.
const SizeMax = 1023 << 20

// Text is a content, divided into lines. Its copies share the content, which must not change. The
// zero value has no lines.
type Text struct {
	data    []byte
	offsets []int32  // where each line begins, and where the last one ends; none without lines
	hashes  []uint32 // of the lines, by hashOf; nil if they are computed as they are needed
}

// Split divides data, at most [SizeMax] bytes, into lines. It takes four bytes a line beside data,
// which it keeps.
func Split(data []byte) Text {
	if len(data) > SizeMax {
		panic("lines: a content above SizeMax")
	}
	if len(data) == 0 {
		return Text{}
	}
	offsets := make([]int32, 1, bytes.Count(data, newline)+2)
	for at := 0; at < len(data); {
		n := bytes.IndexByte(data[at:], '\n')
		if n < 0 {
			n = len(data) - at - 1
		}
		at += n + 1
		offsets = append(offsets, int32(at))
	}
	return Text{data: data, offsets: offsets}
}

var newline = []byte{'\n'}

// Count is the number of lines.
func (t Text) Count() int { return max(len(t.offsets)-1, 0) }

// Line returns the line of an index that counts from 0, with its line feed, which only the last
// line may lack.
func (t Text) Line(index int) []byte { return t.data[t.offsets[index]:t.offsets[index+1]] }

// Range returns count lines from an index on, as they are in the content.
func (t Text) Range(index, count int) []byte {
	if count == 0 {
		return nil
	}
	return t.data[t.offsets[index]:t.offsets[index+count]]
}

// part returns the lines from an index on up to another.
func (t Text) part(start, end int) Text {
	offsets := make([]int32, end-start+1)
	from := t.offsets[start]
	for i := range offsets {
		offsets[i] = t.offsets[start+i] - from
	}
	part := Text{data: t.data[from:t.offsets[end]], offsets: offsets}
	if t.hashes != nil {
		part.hashes = t.hashes[start:end]
	}
	return part
}

// head returns the first count lines.
func (t Text) head(count int) Text {
	if count == 0 {
		return Text{}
	}
	head := Text{data: t.data[:t.offsets[count]], offsets: t.offsets[:count+1]}
	if t.hashes != nil {
		head.hashes = t.hashes[:count]
	}
	return head
}

// commonStart counts the lines that both texts begin with.
func commonStart(a, b Text) int {
	n := object.CommonPrefix(a.data, b.data)
	count := sort.Search(min(a.Count(), b.Count()), func(i int) bool {
		return int(a.offsets[i+1]) > n || a.offsets[i+1] != b.offsets[i+1]
	})
	return count
}

// commonEnd counts the lines that both texts end with, limit at most.
func commonEnd(a, b Text, limit int) int {
	n := object.CommonSuffix(a.data, b.data)
	return sort.Search(limit, func(i int) bool {
		sizeA := len(a.data) - int(a.offsets[a.Count()-i-1])
		sizeB := len(b.data) - int(b.offsets[b.Count()-i-1])
		return sizeA > n || sizeA != sizeB
	})
}

// tailBlock is the size of the blocks that cutTails leaves out, in bytes.
const tailBlock = 1024

// cutTails leaves out the common end of both texts, in whole blocks of [tailBlock] bytes up to the
// end of a line, as git does before it compares two contents whose surroundings it will not show.
func cutTails(a, b Text) (Text, Text) {
	cut := object.CommonSuffix(a.data, b.data) / tailBlock * tailBlock
	n := bytes.IndexByte(a.data[len(a.data)-cut:], '\n')
	if n < 0 {
		return a, b
	}
	cut -= n + 1
	return a.headOf(len(a.data) - cut), b.headOf(len(b.data) - cut)
}

// headOf returns the lines in the first size bytes, where a line ends.
func (t Text) headOf(size int) Text {
	count, _ := slices.BinarySearch(t.offsets, int32(size))
	return t.head(count)
}
