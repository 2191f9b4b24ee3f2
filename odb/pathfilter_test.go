package odb_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"packhorse/odb"
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
	must(t, h.store.BuildFilters(t.Context(), h.pool))
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
