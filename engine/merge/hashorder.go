package merge

import "slices"

// Some of git's answers depend on the order in which it goes through a hash table: which of several
// equally good folders is searched for a file, and the order in which folders are opened, which
// decides between equally similar files. The order is the same everywhere, since neither the hash
// nor the table has anything random in it.

const (
	tableSizeMin  = 64
	tableGrowth   = 4
	tableLoadPart = 80 // in percent
)

// inHashOrder returns items, given in the order in which they were inserted under different keys,
// in the order of git's hash table.
func inHashOrder[T any](items []T, key func(T) string) []T {
	if len(items) < 2 {
		return items
	}
	hashes := make([]uint32, len(items))
	table := make([][]int, tableSizeMin) // of each bucket the items, the last first in git's chain
	for i := range items {
		hashes[i] = hashOf(key(items[i]))
		bucket := hashes[i] & uint32(len(table)-1)
		table[bucket] = append(table[bucket], i)
		if i+1 > len(table)*tableLoadPart/100 {
			table = grow(table, hashes)
		}
	}
	ordered := make([]T, 0, len(items))
	for _, chain := range table {
		for _, i := range slices.Backward(chain) {
			ordered = append(ordered, items[i])
		}
	}
	return ordered
}

// grow moves a table's chains, from their heads on, to the heads of those of a larger one.
func grow(table [][]int, hashes []uint32) [][]int {
	larger := make([][]int, len(table)*tableGrowth)
	for _, chain := range table {
		for _, i := range slices.Backward(chain) {
			bucket := hashes[i] & uint32(len(larger)-1)
			larger[bucket] = append(larger[bucket], i)
		}
	}
	return larger
}

// hashOf is FNV-1 of 32 bits.
func hashOf(s string) uint32 {
	hash := uint32(0x811c9dc5)
	for i := range len(s) {
		hash = hash*0x01000193 ^ uint32(s[i])
	}
	return hash
}
