package segment

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sort"

	"packhorse/pack/object"
)

// A history file is a sectioned file of the histories of paths in a segment. Its IDs name the
// paths, see [PathID]. For each there is
//
//	4 index of its first row | 4 number of rows
//
// and a row for each commit of the segment that changed the path against its first parent, or that
// has the path and no parent; and if it is a merge that did, one for each other parent that it has
// changed the path against. They are sorted by commit, then by parent:
//
//	20 commit | 4 parent | 4 mode before | 20 ID before | 4 mode after | 20 ID after | 8 offset | 4 size
//
// Parents count from 0. A mode is 0 where the path does not exist. Offset and size are those of the
// changed lines in a section of bytes, in the form of the caller; the size is 0 if they are not
// known.
const (
	historyItemSize = 4 + 4
	// HistoryRowSize is the size in bytes of a row.
	HistoryRowSize = object.IDSize + 4 + 2*(4+object.IDSize) + 8 + 4
)

// Version is a path as a commit has it: zero if it does not exist there.
type Version struct {
	Mode object.Mode // canonical
	ID   object.ID
}

// PathChange is a row of a history.
type PathChange struct {
	Commit   object.ID
	Parent   int // index of the parent that has the old version
	Old, New Version
	// Lines are the changed lines in the file, empty if they are not known.
	Lines HistoryLines
}

// HistoryLines is the place of changed lines in a history file.
type HistoryLines struct {
	offset uint64
	size   uint32
}

// Known reports whether there are any.
func (l HistoryLines) Known() bool { return l.size > 0 }

// PathID returns the name of a path in history files: the first bytes of its SHA-256.
func PathID(path string) object.ID {
	sum := sha256.Sum256([]byte(path))
	return object.ID(sum[:object.IDSize])
}

// PathHistory is the history of one path, in memory.
type PathHistory struct{ rows []byte }

// PathHistory returns the history of a path, nil if the file has none. It takes 84 bytes of memory
// a row at most.
func (g *File) PathHistory(ctx context.Context, path object.ID) (*PathHistory, error) {
	index, ok, err := g.Lookup(ctx, path)
	if !ok || err != nil {
		return nil, err
	}
	return g.PathHistoryAt(ctx, index)
}

// PathHistoryAt returns the history at an ordinal.
func (g *File) PathHistoryAt(ctx context.Context, index uint32) (*PathHistory, error) {
	item, err := g.Item(ctx, SectionHistories, int(index))
	if err != nil {
		return nil, err
	}
	first, count := binary.BigEndian.Uint32(item), binary.BigEndian.Uint32(item[4:])
	rows, err := g.Items(ctx, SectionHistoryRows, int(first), int(count))
	if err != nil {
		return nil, err
	}
	return &PathHistory{rows: rows}, nil
}

// Count returns the number of rows.
func (h *PathHistory) Count() int { return len(h.rows) / HistoryRowSize }

// At returns a row.
func (h *PathHistory) At(index int) PathChange {
	row := h.rows[index*HistoryRowSize:]
	version := func(row []byte) Version {
		return Version{object.Mode(binary.BigEndian.Uint32(row)), object.ID(row[4:])}
	}
	return PathChange{
		Commit: object.ID(row), Parent: int(binary.BigEndian.Uint32(row[20:])),
		Old: version(row[24:]), New: version(row[48:]),
		Lines: HistoryLines{binary.BigEndian.Uint64(row[72:]), binary.BigEndian.Uint32(row[80:])},
	}
}

// Find returns the row of a commit and one of its parents, or false if there is none.
func (h *PathHistory) Find(commit object.ID, parent int) (PathChange, bool) {
	var key [object.IDSize + 4]byte
	binary.BigEndian.PutUint32(key[copy(key[:], commit[:]):], uint32(parent))
	row := func(i int) []byte { return h.rows[i*HistoryRowSize:][:len(key)] }
	i := sort.Search(h.Count(), func(i int) bool { return bytes.Compare(row(i), key[:]) >= 0 })
	if i == h.Count() || !bytes.Equal(row(i), key[:]) {
		return PathChange{}, false
	}
	return h.At(i), true
}

// Compare orders rows by commit and parent.
func (c *PathChange) Compare(other *PathChange) int {
	return cmp.Or(c.Commit.Compare(other.Commit), cmp.Compare(c.Parent, other.Parent))
}

// Lines returns changed lines of a history of the file, shared and read-only.
func (g *File) Lines(ctx context.Context, l HistoryLines) ([]byte, error) {
	if l.offset > 1<<62 {
		return nil, g.Damaged(fmt.Errorf("%w: no lines at %d", ErrFormat, l.offset))
	}
	return g.Bytes(ctx, SectionHistoryLines, int64(l.offset), int64(l.size))
}

// HistoryWriter writes the sections of a history file. The memory of the rows, of 84 bytes each, is
// taken until the end.
type HistoryWriter struct {
	sections *SectionWriter
	offset   uint64 // in the section of lines
	ids      []object.ID
	items    []byte
	rows     []byte
}

// NewHistoryWriter begins a history file.
func NewHistoryWriter(sections *SectionWriter) *HistoryWriter {
	sections.Begin(SectionHistoryLines)
	return &HistoryWriter{sections: sections}
}

// AddLines writes changed lines, and returns their place.
func (w *HistoryWriter) AddLines(lines []byte) HistoryLines {
	w.sections.AddBytes(lines)
	at := HistoryLines{w.offset, uint32(len(lines))}
	w.offset += uint64(len(lines))
	return at
}

// Add writes the history of a path. Paths come in the order of their IDs, changes in that of
// [PathChange.Compare].
func (w *HistoryWriter) Add(path object.ID, changes []PathChange) {
	w.ids = append(w.ids, path)
	w.items = binary.BigEndian.AppendUint32(w.items, uint32(len(w.rows)/HistoryRowSize))
	w.items = binary.BigEndian.AppendUint32(w.items, uint32(len(changes)))
	for i := range changes {
		c := &changes[i]
		w.rows = append(w.rows, c.Commit[:]...)
		w.rows = binary.BigEndian.AppendUint32(w.rows, uint32(c.Parent))
		for _, v := range [2]*Version{&c.Old, &c.New} {
			w.rows = binary.BigEndian.AppendUint32(w.rows, uint32(v.Mode))
			w.rows = append(w.rows, v.ID[:]...)
		}
		w.rows = binary.BigEndian.AppendUint64(w.rows, c.Lines.offset)
		w.rows = binary.BigEndian.AppendUint32(w.rows, c.Lines.size)
	}
}

// Finish writes what is left, and returns the number of paths.
func (w *HistoryWriter) Finish() int {
	w.sections.addIDs(w.ids)
	w.sections.Begin(SectionHistories)
	for ; len(w.items) > 0; w.items = w.items[historyItemSize:] {
		w.sections.Add(w.items[:historyItemSize])
	}
	w.sections.Begin(SectionHistoryRows)
	for ; len(w.rows) > 0; w.rows = w.rows[HistoryRowSize:] {
		w.sections.Add(w.rows[:HistoryRowSize])
	}
	return len(w.ids)
}
