package segment

import (
	"context"

	"packhorse/odb/bloom"
	"packhorse/pack/object"
)

// A filter file is a sectioned file whose IDs are the commits of a segment, with the place of a
// path filter for each; see [SizedRowSize].

// PathFilter returns the path filter of a commit, or false if the file holds none. The filter is
// shared and read-only.
func (g *File) PathFilter(ctx context.Context, commit object.ID) (bloom.Filter, bool, error) {
	index, ok, err := g.Lookup(ctx, commit)
	if !ok || err != nil {
		return nil, false, err
	}
	f, err := g.PathFilterAt(ctx, index)
	return f, err == nil, err
}

// PathFilterAt returns the path filter at an ordinal, shared and read-only.
func (g *File) PathFilterAt(ctx context.Context, index uint32) (bloom.Filter, error) {
	return g.sized(ctx, SectionFilterRows, SectionFilterBytes, index)
}

// WriteFilters writes the sections of a filter file for the commits of a graph file, and returns
// their number. filters are in the order of the rows of the graph file.
func WriteFilters(ctx context.Context, sections *SectionWriter, rows *File, filters []bloom.Filter) (int, error) {
	sections.Begin(SectionIDs)
	for i := range filters {
		id, err := rows.ID(ctx, uint32(i))
		if err != nil {
			return 0, err
		}
		sections.Add(id[:])
	}
	sections.AddFanout(&rows.fanout)
	sections.Begin(SectionFilterRows)
	offset := uint64(0)
	for _, f := range filters {
		sections.Add(sizedRow(offset, len(f)))
		offset += uint64(len(f))
	}
	sections.Begin(SectionFilterBytes)
	for _, f := range filters {
		sections.AddBytes(f)
	}
	return len(filters), nil
}
