package ingest

import (
	"context"
	"sync/atomic"

	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// ingestMemory is the memory that an incoming pack may hold. The memory that its request was
// admitted for suffices for a small pack. A larger one takes a part of the free memory, once, and
// never waits for more: with less memory it writes more scratch files.
type ingestMemory struct {
	most   int64 // Options.IngestMemoryBytes
	bytes  atomic.Int64
	spared bool // it has taken free memory; used by the reading goroutine
}

// ingestMemoryMin is the memory in bytes that every pack may hold.
const ingestMemoryMin = 2 << 20

func newIngestMemory(ctx context.Context, most int64) *ingestMemory {
	m := &ingestMemory{most: most}
	if held, ok := fair.Held(ctx); ok {
		m.bytes.Store(max(ingestMemoryMin, min(held, most)))
	} else {
		m.bytes.Store(most)
	}
	return m
}

// spare takes a part of the free memory.
func (m *ingestMemory) spare(ctx context.Context) {
	if !m.spared {
		m.spared = true
		m.bytes.Store(max(m.bytes.Load(), fair.Spare(ctx, m.most)))
	}
}

// The shares of the memory. A link takes about 40 bytes.
func (m *ingestMemory) queued() int64 { return m.bytes.Load() / 4 }
func (m *ingestMemory) bases() int64  { return m.bytes.Load() / 4 }
func (m *ingestMemory) deltas() int64 { return m.bytes.Load() / 8 }
func (m *ingestMemory) links() int    { return int(m.bytes.Load() / 3 / 40) }

// held returns the size up to which memory holds an object of a type. A blob can be examined in
// parts.
func (in *Ingest) held(t object.Type) int64 {
	if t != object.TypeBlob {
		return in.options.WholeBytes
	}
	return min(in.options.WholeBytes, in.memory.queued())
}

// tableCosts are the bytes per object in the tables, in addition to the bound of the pack.
const tableCosts = 48

// needTables asks for the memory of the tables of count objects, and of a commit, tree or tag of
// some size beside them.
func (in *Ingest) needTables(ctx context.Context, count int, structureSize int64) error {
	return fair.Need(ctx, in.memory.bytes.Load()+int64(count)*tableCosts+structureCosts*structureSize)
}

// structureCosts is the memory of a received commit, tree or tag as a multiple of its size: packed,
// inflated, and its links.
const structureCosts = 3
