package object

import (
	"bytes"
	"math/bits"
	"slices"
	"strconv"
)

// TreeEntry is one name in a tree.
type TreeEntry struct {
	Mode Mode
	// Padding counts the leading zeros of the mode as stored: 0 but in trees of old tools.
	Padding uint8
	Name    string
	ID      ID
}

// TreeIter walks the entries of a tree in stored order, without allocating:
//
//	it := object.IterTree(data)
//	for it.Next() {
//		use(it.Mode, it.Name, it.ID)
//	}
//	return it.Err()
//
// The format of an entry, repeated without separators:
//
//	mode in octal | 0x20 | name | 0x00 | 20 bytes of object ID
type TreeIter struct {
	Mode    Mode
	Padding uint8
	Name    []byte // a part of the data given to IterTree
	ID      ID

	rest []byte
	err  error
}

// IterTree returns an iterator over the tree in data, which must stay as it is while the iterator
// is used. A mode that exceeds 32 bits ends it with an error; git would read it modulo 2^32.
func IterTree(data []byte) TreeIter { return TreeIter{rest: data} }

// Next moves to the next entry and reports whether there is one.
func (it *TreeIter) Next() bool {
	rest := it.rest
	if len(rest) == 0 || it.err != nil {
		return false
	}
	switch { // nearly every entry is one of the first two
	case len(rest) > 7 && string(rest[:7]) == "100644 ":
		it.Mode, it.Padding, rest = ModeBlob, 0, rest[7:]
	case len(rest) > 6 && string(rest[:6]) == "40000 ":
		it.Mode, it.Padding, rest = ModeTree, 0, rest[6:]
	default:
		if rest = it.mode(rest); rest == nil {
			return false
		}
	}
	end := bytes.IndexByte(rest, 0)
	if end < 0 || len(rest)-end-1 < IDSize {
		return it.fail("truncated entry")
	}
	it.Name = rest[:end:end]
	it.ID = ID(rest[end+1:])
	it.rest = rest[end+1+IDSize:]
	return true
}

// SkipFiles moves past the regular files before the next entry of another kind, faster than Next
// does. An entry of unusual form is left to Next.
func (it *TreeIter) SkipFiles() {
	const mode = "100644 "
	rest := it.rest
	for len(rest) > len(mode) && string(rest[:len(mode)]) == mode {
		end := len(mode) + bytes.IndexByte(rest[len(mode):], 0)
		if end < len(mode) || len(rest)-end-1 < IDSize {
			break
		}
		rest = rest[end+1+IDSize:]
	}
	it.rest = rest
}

// AppendFolders appends the entries of a tree that are trees to dst, as they are, so that the
// result is a tree. Errors: [ErrMalformed].
func AppendFolders(dst, tree []byte) ([]byte, error) {
	it := IterTree(tree)
	for {
		it.SkipFiles()
		entry := it.rest
		if !it.Next() {
			return dst, it.err
		}
		if it.Mode.IsTree() {
			dst = append(dst, entry[:len(entry)-len(it.rest)]...)
		}
	}
}

// mode takes any mode and the space behind it from the front of rest. It returns the rest, or nil
// when the walk fails.
func (it *TreeIter) mode(rest []byte) []byte {
	var mode Mode
	i := 0
	for ; i < len(rest) && rest[i] >= '0' && rest[i] <= '7'; i++ {
		if mode >= 1<<(32-3) {
			it.fail("mode out of range")
			return nil
		}
		mode = mode<<3 | Mode(rest[i]-'0')
	}
	if i == 0 || i == len(rest) || rest[i] != ' ' {
		it.fail("bad mode")
		return nil
	}
	padding := 0
	if rest[0] == '0' {
		padding = i - max(1, (bits.Len32(uint32(mode))+2)/3)
	}
	if padding > 0xff {
		it.fail("mode out of range")
		return nil
	}
	it.Mode, it.Padding = mode, uint8(padding)
	return rest[i+1:]
}

func (it *TreeIter) fail(detail string) bool {
	it.err = malformed(TypeTree, "%s", detail)
	return false
}

// Err returns nil when the walk ended at the end of the tree, and [ErrMalformed] otherwise.
func (it *TreeIter) Err() error { return it.err }

// Rest returns the bytes behind the current entry.
func (it *TreeIter) Rest() []byte { return it.rest }

// AppendTree appends the tree of entries, in the order given, to dst. Of what [TreeIter] walked
// over it makes the same bytes again.
func AppendTree(dst []byte, entries []TreeEntry) []byte {
	for i := range entries {
		dst = AppendTreeEntry(dst, &entries[i])
	}
	return dst
}

// AppendTreeEntry appends one entry of a tree to dst.
func AppendTreeEntry(dst []byte, e *TreeEntry) []byte {
	for range e.Padding {
		dst = append(dst, '0')
	}
	dst = strconv.AppendUint(dst, uint64(e.Mode), 8)
	dst = append(dst, ' ')
	dst = append(dst, e.Name...)
	dst = append(dst, 0)
	return append(dst, e.ID[:]...)
}

// CompareEntries orders two entries as a tree does: by the bytes of their names, a tree's name
// being followed by a slash.
func CompareEntries[A, B string | []byte](aName A, aTree bool, bName B, bTree bool) int {
	n := min(len(aName), len(bName))
	switch { // comparing makes no copies of bytes
	case string(aName[:n]) < string(bName[:n]):
		return -1
	case string(aName[:n]) > string(bName[:n]):
		return 1
	}
	return nameEnd(aName[n:], aTree) - nameEnd(bName[n:], bTree)
}

// CompareNames is [CompareEntries] for names as a [TreeIter] gives them, and quicker.
func CompareNames(aName []byte, aTree bool, bName []byte, bTree bool) int {
	n := min(len(aName), len(bName))
	if order := bytes.Compare(aName[:n], bName[:n]); order != 0 {
		return order
	}
	return nameEnd(aName[n:], aTree) - nameEnd(bName[n:], bTree)
}

// nameEnd returns what counts in a comparison behind the common part of two names: the next byte if
// there is one, else the implied end.
func nameEnd[T string | []byte](rest T, tree bool) int {
	switch {
	case len(rest) > 0:
		return int(rest[0])
	case tree:
		return '/'
	default:
		return 0
	}
}

// SortTree puts entries into the order of a tree.
func SortTree(entries []TreeEntry) {
	slices.SortFunc(entries, func(a, b TreeEntry) int {
		return CompareEntries(a.Name, a.Mode.IsTree(), b.Name, b.Mode.IsTree())
	})
}
