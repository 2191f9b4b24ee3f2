package odbtest

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"packhorse/odb"
	"packhorse/pack/object"
)

// PathFilters returns the changed-path filters that git makes of all commits.
func (g *Repository) PathFilters() map[object.ID][]byte {
	g.tb.Helper()
	g.Git("commit-graph", "write", "--reachable", "--changed-paths")
	data, err := os.ReadFile(filepath.Join(g.Dir, "objects", "info", "commit-graph"))
	Must(g.tb, err)
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

// PathFilter returns the changed-path filter of a commit, nil if it has none.
func PathFilter(tb testing.TB, v *odb.View, commit object.ID) []byte {
	tb.Helper()
	filters, err := v.OpenFilters(tb.Context())
	Must(tb, err)
	defer filters.Close()
	filter, err := filters.Find(tb.Context(), commit)
	Must(tb, err)
	return filter
}
