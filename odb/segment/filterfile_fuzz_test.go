package segment_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"packhorse/odb/bloom"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// FuzzPathFilters checks that each filter of a filter file has the size that its row states or is
// found damaged.
func FuzzPathFilters(f *testing.F) {
	cache, err := segment.NewCache(1 << 20)
	if err != nil {
		f.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	env := &segment.Env{Cache: cache, Damage: segment.NewDamageLog(log, nil), Log: log}
	row := func(offset uint64, size uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, offset), size)
	}
	f.Add(slices.Concat(row(0, 2), row(2, 3)), []byte{1, 2, 3, 4, 5})
	f.Add(slices.Concat(row(4, 2), row(0, 0), row(1<<63, 1), row(1<<62-1, 1<<32-1)), []byte{0xff, 0, 0, 0xff, 7})
	f.Add(row(1, 70_000), bytes.Repeat([]byte{0x5a}, 70_001))
	f.Fuzz(func(t *testing.T, rows, filters []byte) {
		if len(rows) > 12<<10 {
			return
		}
		found, err := readFilters(t.Context(), env, rows, filters)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range found {
			offset, size := binary.BigEndian.Uint64(rows[12*i:])&(1<<62-1), uint64(binary.BigEndian.Uint32(rows[12*i+8:]))
			inside := size > 0 && offset <= uint64(len(filters)) && size <= uint64(len(filters))-offset
			if inside != (got != nil) || inside && !bytes.Equal(got, filters[offset:offset+size]) {
				t.Errorf("filter %d of %d bytes at %d of %d is %x", i, size, offset, len(filters), got)
			}
		}
	})
}

// readFilters makes a filter file of the rows and bytes of its sections, and returns the filter of
// each row, nil for a damaged one. Both ways of asking a filter must agree.
func readFilters(ctx context.Context, env *segment.Env, rows, filters []byte) ([][]byte, error) {
	rows = rows[:len(rows)/segment.SizedRowSize*segment.SizedRowSize]
	var out bytes.Buffer
	id := segment.NewLayerID()
	sections := segment.NewSectionWriter(&out, id, 0)
	count := len(rows) / segment.SizedRowSize
	var ids []object.ID
	var fanout [256]uint32
	sections.Begin(segment.SectionIDs)
	for i := range count {
		ids = append(ids, object.ID{18: byte(i >> 8), 19: byte(i)})
		sections.Add(ids[i][:])
	}
	for i := range fanout {
		fanout[i] = uint32(count)
	}
	sections.AddFanout(&fanout)
	sections.Begin(segment.SectionFilterRows)
	for i := range count {
		sections.Add(rows[i*segment.SizedRowSize : (i+1)*segment.SizedRowSize])
	}
	sections.Begin(segment.SectionFilterBytes)
	sections.AddBytes(filters)
	footer, err := sections.Finish(count, segment.FilterMagic)
	if err != nil {
		return nil, err
	}
	out.Write(footer)
	g, err := segment.OpenFile(ctx, env, id, memoryFile{bytes.NewReader(out.Bytes())}, segment.FilterMagic)
	if err != nil {
		return nil, err
	}
	found := make([][]byte, count)
	for i := range ids {
		f, ok, err := g.PathFilter(ctx, ids[i])
		if errors.Is(err, segment.ErrCorrupt) {
			continue
		}
		if err != nil || !ok || len(f) == 0 {
			return nil, fmt.Errorf("filter %d: %d bytes, %v, %w", i, len(f), ok, err)
		}
		probe := f.Probe()
		for _, path := range []string{"", "a", "a/b", string(rows)} {
			if key := bloom.NewKey(path); f.Has(key) != probe.Has(key) {
				return nil, fmt.Errorf("filter %d has %q and has not", i, path)
			}
		}
		found[i] = f
	}
	return found, nil
}

// memoryFile is a file in memory.
type memoryFile struct{ *bytes.Reader }

func (m memoryFile) ReadAt(_ context.Context, p []byte, offset int64) (int, error) {
	return m.Reader.ReadAt(p, offset)
}

func (memoryFile) Close() error { return nil }
