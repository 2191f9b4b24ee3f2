package segment_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// FuzzPathHistories writes a history of rows that may be in any order and name any lines. Reading
// returns each row that Find can reach, and lines inside the section, or finds damage.
func FuzzPathHistories(f *testing.F) {
	cache, err := segment.NewCache(1 << 20)
	if err != nil {
		f.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	env := &segment.Env{Cache: cache, Damage: segment.NewDamageLog(log, nil), Log: log}
	row := func(commit byte, offset uint64, size uint32) []byte {
		row := make([]byte, segment.HistoryRowSize)
		row[0] = commit
		binary.BigEndian.PutUint64(row[72:], offset)
		binary.BigEndian.PutUint32(row[80:], size)
		return row
	}
	f.Add(slices.Concat(row(1, 0, 3), row(2, 3, 2)), []byte{1, 2, 3, 4, 5}, uint32(0), uint32(2))
	f.Add(slices.Concat(row(2, 4, 4), row(1, 1<<63, 1), row(1, 1<<62, 1<<31)), []byte{9}, uint32(1), uint32(7))
	f.Add(row(7, 0, 0), []byte{}, uint32(1<<31), uint32(1<<31))
	f.Fuzz(func(t *testing.T, rows, lines []byte, first, count uint32) {
		if len(rows) > 8<<10 {
			return
		}
		rows = rows[:len(rows)/segment.HistoryRowSize*segment.HistoryRowSize]
		g, path := historyFile(t, env, rows, lines, first, count)
		h, err := g.PathHistory(t.Context(), path)
		total := uint64(len(rows) / segment.HistoryRowSize)
		if inside := uint64(first)+uint64(count) <= total; inside != (err == nil) ||
			err != nil && !errors.Is(err, segment.ErrCorrupt) {
			t.Fatalf("%d rows at %d of %d: %v", count, first, total, err)
		}
		if err != nil {
			return
		}
		if h.Count() != int(count) {
			t.Fatalf("%d rows, want %d", h.Count(), count)
		}
		for i := range h.Count() {
			c := h.At(i)
			if found, ok := h.Find(c.Commit, c.Parent); ok && found.Compare(&c) != 0 {
				t.Errorf("row %d, %+v: found %+v", i, c, found)
			}
			stored := rows[(int(first)+i)*segment.HistoryRowSize:]
			offset, size := binary.BigEndian.Uint64(stored[72:]), uint64(binary.BigEndian.Uint32(stored[80:]))
			got, err := g.Lines(t.Context(), c.Lines)
			inside := offset <= uint64(len(lines)) && size <= uint64(len(lines))-min(offset, uint64(len(lines)))
			if inside != (err == nil) || inside && !bytes.Equal(got, lines[offset:offset+size]) {
				t.Errorf("row %d: %d bytes at %d of %d: %x, %v", i, size, offset, len(lines), got, err)
			}
		}
	})
}

// historyFile makes a history file of one path from the bytes of its sections.
func historyFile(
	t *testing.T, env *segment.Env, rows, lines []byte, first, count uint32,
) (*segment.File, object.ID) {
	t.Helper()
	path := segment.PathID("path")
	var out bytes.Buffer
	id := segment.NewLayerID()
	sections := segment.NewSectionWriter(&out, id, 0)
	sections.Begin(segment.SectionIDs)
	sections.Add(path[:])
	var fanout [256]uint32
	for i := int(path[0]); i < len(fanout); i++ {
		fanout[i] = 1
	}
	sections.AddFanout(&fanout)
	sections.Begin(segment.SectionHistories)
	sections.Add(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, first), count))
	sections.Begin(segment.SectionHistoryRows)
	for ; len(rows) > 0; rows = rows[segment.HistoryRowSize:] {
		sections.Add(rows[:segment.HistoryRowSize])
	}
	sections.Begin(segment.SectionHistoryLines)
	sections.AddBytes(lines)
	footer, err := sections.Finish(1, segment.HistoryMagic)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(footer)
	file := memoryFile{bytes.NewReader(out.Bytes())}
	g, err := segment.OpenFile(context.Background(), env, id, file, segment.HistoryMagic)
	if err != nil {
		t.Fatal(err)
	}
	return g, path
}
