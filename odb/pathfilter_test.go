package odb_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/repack"
	"packhorse/pack/object"
)

// gitFilters returns the path filters that git makes of the commits of a repository.
func (g *repository) gitFilters() map[object.ID][]byte {
	g.tb.Helper()
	g.Git("commit-graph", "write", "--reachable", "--changed-paths")
	data, err := os.ReadFile(filepath.Join(g.Dir, "objects", "info", "commit-graph"))
	g.must(err)
	chunks := make(map[string][]byte)
	for i := range int(data[6]) {
		row := data[8+12*i:]
		chunks[string(row[:4])] = data[binary.BigEndian.Uint64(row[4:]):binary.BigEndian.Uint64(row[16:])]
	}
	filters := make(map[object.ID][]byte)
	start, bits := uint32(0), chunks["BDAT"][12:]
	for i := range len(chunks["OIDL"]) / object.IDSize {
		end := binary.BigEndian.Uint32(chunks["BIDX"][4*i:])
		filters[object.ID(chunks["OIDL"][i*object.IDSize:])] = bits[start:end]
		start = end
	}
	return filters
}

func TestPathFiltersAreGits(t *testing.T) {
	t.Parallel()
	g := newHistory(t, historyOptions{seed: 61, commitCount: 150})
	h := newIngestHost(t, odb.Options{Limits: odb.Limits{HotCount: 1}})
	h.pushPack(g, lines("", g.tips()))
	must(t, repack.BuildFilters(t.Context(), h.store, h.pool))
	v := h.view()
	checked := 0
	for id, want := range g.gitFilters() {
		got, err := odb.PathFilter(t.Context(), v, id)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("filter of %s is %x, want %x", id, got, want)
		}
		checked++
	}
	if checked == 0 {
		t.Error("git made no filters")
	}
}

// TestCompactMakesFilters maintains a pool of one segment, which stays as it is and gets its path
// filters.
func TestCompactMakesFilters(t *testing.T) {
	t.Parallel()
	g := newRepository(t)
	g.Seed(oracle.History{Seed: 7, Commits: 30})
	h := newIngestHost(t, odb.Options{})
	h.pushSegment(packAll(g.Repository))
	done, err := repack.Compact(t.Context(), h.store, h.pool, repack.CompactOptions{})
	if err != nil || done.LayerCount != 0 {
		t.Fatalf("Compact = %+v, %v, want nothing to merge", done, err)
	}
	v := h.view()
	for _, id := range g.tips("refs/heads/main") {
		if f, err := odb.PathFilter(t.Context(), v, id); f == nil || err != nil {
			t.Errorf("commit %s has the path filter %x, %v", id, f, err)
		}
	}
}

// FuzzPathFilters holds that whatever a filter file says is a filter of the size that it
// states or is found damaged, and that a hot filter is read as it was written and in no other way.
func FuzzPathFilters(f *testing.F) {
	h := newIngestHost(f, odb.Options{CacheBytes: 1 << 20})
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
		found, err := odb.ReadFilters(t.Context(), h.store, rows, filters)
		must(t, err)
		for i, got := range found {
			offset, size := binary.BigEndian.Uint64(rows[12*i:])&(1<<62-1), uint64(binary.BigEndian.Uint32(rows[12*i+8:]))
			inside := size > 0 && offset <= uint64(len(filters)) && size <= uint64(len(filters))-offset
			if inside != (got != nil) || inside && !bytes.Equal(got, filters[offset:offset+size]) {
				t.Errorf("filter %d of %d bytes at %d of %d is %x", i, size, offset, len(filters), got)
			}
		}
		id := object.ID{1}
		if len(filters) == 0 {
			return
		}
		got, err := odb.DecodeHotFilter(id, odb.EncodeHotFilter(id, filters))
		if err != nil || !bytes.Equal(got, filters) {
			t.Errorf("hot filter %x is read as %x, %v", filters, got, err)
		}
		if got, err := odb.DecodeHotFilter(id, filters); err == nil && !bytes.Equal(odb.EncodeHotFilter(id, got), filters) {
			t.Errorf("hot value %x is read as %x", filters, got)
		}
		if got, err := odb.DecodeHotFilter(object.ID{2}, odb.EncodeHotFilter(id, filters)); err == nil {
			t.Errorf("the hot filter of another commit is read as %x", got)
		}
	})
}
