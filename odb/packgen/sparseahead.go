package packgen

import "packhorse/odb/file"

// sparseAhead tells a [file.Cached] which places of a segment are read next, where few entries of
// many are sent. It does nothing for any other file.
type sparseAhead struct {
	cached  file.Cached
	entries []segmentEntry // in their stored order
	told    int            // entries that it was told of
	blocks  int            // of these, those that lie ahead
}

const (
	sparseBlockSize = 1 << 20 // entries that begin in the same MiB are told of together
	sparseBlocks    = file.AheadBytes / sparseBlockSize
)

func newSparseAhead(r file.ReaderAt, entries []segmentEntry) sparseAhead {
	cached, _ := r.(file.Cached)
	return sparseAhead{cached: cached, entries: entries}
}

// begins reports whether the entry at an index is the first one of its block.
func (a *sparseAhead) begins(i int) bool {
	return i == 0 || a.entries[i].Offset/sparseBlockSize != a.entries[i-1].Offset/sparseBlockSize
}

// at says that the reader has come to the entry at an index.
func (a *sparseAhead) at(i int) {
	if a.cached == nil {
		return
	}
	if i > 0 && a.begins(i) {
		a.blocks--
	}
	for a.told < len(a.entries) && a.blocks < sparseBlocks {
		first := a.told
		for a.told++; a.told < len(a.entries) && !a.begins(a.told); {
			a.told++
		}
		last := &a.entries[a.told-1]
		begin := a.entries[first].Offset
		a.cached.Prefetch(begin, min(last.Offset+last.PackedSize-begin, file.AheadBytes))
		a.blocks++
	}
}
