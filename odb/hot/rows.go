package hot

import (
	"iter"

	"packhorse/pack/object"
)

// Rows are rows of objects. Their bytes lie in a few blocks, and their places hold no pointers: a
// process holds many thousands of copied rows, and the garbage collector would visit each. Memory
// that was handed out never changes.
type Rows struct {
	places map[object.ID]places
	blocks [][]byte // all but the last are full
	used   int      // bytes of blocks
}

// places are where the parts of a row lie.
type places struct{ value, graph, filter span }

// span is a part of a block. Blocks count from 1; block 0 stands for nothing.
type span struct{ block, start, end uint32 }

// Blocks grow with the rows within these bounds, in bytes.
const blockMin, blockMax = 256, 64 << 10

func newRows() *Rows { return &Rows{places: make(map[object.ID]places)} }

// newRowsFor returns rows with room for so many objects and bytes.
func newRowsFor(count, bytes int) *Rows {
	return &Rows{places: make(map[object.ID]places, count), blocks: [][]byte{make([]byte, 0, bytes)}}
}

// count returns the number of objects.
func (r *Rows) count() int { return len(r.places) }

func (r *Rows) has(id object.ID) bool {
	_, ok := r.places[id]
	return ok
}

// get returns the row of an object, false if there is none.
func (r *Rows) get(id object.ID) (Row, bool) {
	at, ok := r.places[id]
	return r.row(&at), ok
}

func (r *Rows) row(at *places) Row {
	return Row{Value: r.bytes(at.value), Graph: r.bytes(at.graph), Filter: r.bytes(at.filter)}
}

// bytes returns what lies at a span, nil for nothing.
func (r *Rows) bytes(at span) []byte {
	if at.block == 0 {
		return nil
	}
	return r.blocks[at.block-1][at.start:at.end:at.end]
}

// all yields the rows in any order.
func (r *Rows) all() iter.Seq2[object.ID, Row] {
	return func(yield func(object.ID, Row) bool) {
		for id, at := range r.places {
			if !yield(id, r.row(&at)) {
				return
			}
		}
	}
}

// put copies the row of an object, in place of one that was there.
func (r *Rows) put(id object.ID, row Row) {
	r.places[id] = places{value: r.add(row.Value), graph: r.add(row.Graph), filter: r.add(row.Filter)}
}

// putPart copies what a table has of an object.
func (r *Rows) putPart(id object.ID, table byte, part []byte) {
	at := r.places[id]
	switch table {
	case TableGraph:
		at.graph = r.add(part)
	case TableFilter:
		at.filter = r.add(part)
	default:
		at.value = r.add(part)
	}
	r.places[id] = at
}

// add copies bytes into the last block, or into a new one.
func (r *Rows) add(part []byte) span {
	if part == nil {
		return span{}
	}
	last := len(r.blocks) - 1
	if last < 0 || cap(r.blocks[last])-len(r.blocks[last]) < len(part) {
		size := max(len(part), min(max(r.used, blockMin), blockMax))
		r.blocks = append(r.blocks, make([]byte, 0, size))
		last++
	}
	start := len(r.blocks[last])
	r.blocks[last] = append(r.blocks[last], part...)
	r.used += len(part)
	return span{block: uint32(last) + 1, start: uint32(start), end: uint32(start + len(part))}
}
