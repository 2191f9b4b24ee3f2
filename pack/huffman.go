package pack

import "math/bits"

// huffmanEntry is an entry of a decoding table, for the next bits of the stream:
//
//	bits 0-7    size of the code in bits, those of the first table included
//	bits 8-12   number of extra bits that follow the code
//	bit  13     a literal
//	bit  14     the code is longer: look into the second table that begins at the value
//	bit  15     the end of the block or, with size 0, no code at all
//	bits 16-31  the literal, or the base of a length or a distance
type huffmanEntry uint32

const (
	huffmanLiteral huffmanEntry = 1 << 13
	huffmanSecond  huffmanEntry = 1 << 14
	huffmanSpecial huffmanEntry = 1 << 15
)

// huffmanExtra returns the entry, without its size, of a symbol for base and the value of extra
// further bits.
func huffmanExtra(base, extra int) huffmanEntry {
	return huffmanEntry(base)<<16 | huffmanEntry(extra)<<8
}

func (e huffmanEntry) size() uint  { return uint(e & 0xff) }
func (e huffmanEntry) extra() uint { return uint(e >> 8 & 0x1f) }
func (e huffmanEntry) value() int  { return int(e >> 16) }

const (
	codeSizeMax = 15  // in bits
	symbolsMax  = 288 // of one code
)

// huffmanTable decodes a prefix code: a first table of 1<<first entries by the next bits, lowest
// first, and behind it second tables of 1<<second entries each by the bits that follow.
type huffmanTable struct {
	entries       []huffmanEntry
	first, second uint
}

// newHuffmanTable returns a table for codes of at most symbols symbols, with a first table of at
// most first bits.
func newHuffmanTable(first uint, symbols int) huffmanTable {
	// Below each entry of the first table that leads to a second one there are at least two symbols.
	return huffmanTable{entries: make([]huffmanEntry, 1<<first+symbols/2<<(codeSizeMax-first)), first: first}
}

// build makes t the table of the code whose symbols have the given sizes in bits, 0 for those
// without a code, and returns false when there is no such code. As in zlib, all bits must be used,
// unless there is no symbol, or a single one of one bit.
//
// firstMax bounds the first table. symbols has the entry of each symbol, without the size.
func (t *huffmanTable) build(firstMax uint, sizes []uint8, symbols []huffmanEntry) bool {
	var counts, starts [codeSizeMax + 2]int
	for _, size := range sizes {
		counts[size]++
	}
	longest, left := uint(0), 1
	for size := uint(1); size <= codeSizeMax; size++ {
		starts[size+1] = starts[size] + counts[size]
		if counts[size] > 0 {
			longest = size
		}
		if left = left<<1 - counts[size]; left < 0 {
			return false
		}
	}
	t.first = min(firstMax, max(longest, 1))
	t.second = max(longest, t.first) - t.first
	if left > 0 {
		if longest > 1 {
			return false
		}
		for i := range t.entries[:1<<t.first] {
			t.entries[i] = huffmanSpecial
		}
	}
	var sorted [symbolsMax]uint16
	for symbol, size := range sizes {
		if size > 0 {
			sorted[starts[size]] = uint16(symbol)
			starts[size]++
		}
	}
	t.fill(sorted[:starts[codeSizeMax]], sizes, symbols)
	return true
}

// fill enters symbols, sorted by the size of their codes, which are consecutive numbers then.
func (t *huffmanTable) fill(sorted []uint16, sizes []uint8, symbols []huffmanEntry) {
	code, before := 0, uint(0)
	end, front := 1<<t.first, -1
	for _, symbol := range sorted {
		size := uint(sizes[symbol])
		code <<= size - before
		before = size
		entry := symbols[symbol] | huffmanEntry(size)
		if size <= t.first {
			for i := reverse(code, size); i < 1<<t.first; i += 1 << size {
				t.entries[i] = entry
			}
		} else {
			if at := code >> (size - t.first); at != front {
				front = at
				t.entries[reverse(front, t.first)] = huffmanSecond | huffmanEntry(end)<<16
				end += 1 << t.second
			}
			second := t.entries[end-1<<t.second : end]
			for i := reverse(code, size) >> t.first; i < len(second); i += 1 << (size - t.first) {
				second[i] = entry
			}
		}
		code++
	}
}

// reverse returns the lowest size bits of code, the highest of them first.
func reverse(code int, size uint) int { return int(bits.Reverse16(uint16(code)) >> (16 - size)) }
