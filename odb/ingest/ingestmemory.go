package ingest

import (
	"context"
	"sync/atomic"

	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// ingestMemory is how much an incoming pack may hold. A small one gets along with what its request
// was admitted for. One that turns out to be larger takes of what is free at that moment, once, and
// never waits for more: with less memory it writes more scratch files.
type ingestMemory struct {
	most   int64 // Options.IngestMemoryBytes
	bytes  atomic.Int64
	spared bool // it has taken what was free; used by the goroutine that reads
}

// ingestMemoryMin is what every pack may hold.
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

// spare takes what is free.
func (m *ingestMemory) spare(ctx context.Context) {
	if !m.spared {
		m.spared = true
		m.bytes.Store(max(m.bytes.Load(), fair.Spare(ctx, m.most)))
	}
}

// What of it goes where. Links are of some 40 bytes.
func (m *ingestMemory) queued() int64 { return m.bytes.Load() / 4 }
func (m *ingestMemory) bases() int64  { return m.bytes.Load() / 4 }
func (m *ingestMemory) deltas() int64 { return m.bytes.Load() / 8 }
func (m *ingestMemory) links() int    { return int(m.bytes.Load() / 3 / 40) }

// held is the size up to which an object of a type is held in memory: the parts of a blob can be
// looked at one by one.
func (in *Ingest) held(t object.Type) int64 {
	if t != object.TypeBlob {
		return in.options.WholeBytes
	}
	return min(in.options.WholeBytes, in.memory.queued())
}

// tableCosts are the bytes of an object in the tables, whatever the pack may hold beside them.
const tableCosts = 48

// needTables makes sure that so many objects may be in the tables, and a structure of some size
// beside them.
func (in *Ingest) needTables(ctx context.Context, count int, structureSize int64) error {
	return fair.Need(ctx, in.memory.bytes.Load()+int64(count)*tableCosts+structureCosts*structureSize)
}

// structureCosts are what a commit, tree or tag that is received holds, times its size: packed,
// inflated, and its links.
const structureCosts = 3
