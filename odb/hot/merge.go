package hot

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Content is all rows of a layer that takes no more writes.
type Content struct {
	Count, Size int // of objects; in bytes, keys included
	rows        map[object.ID]Row
}

// IDs returns the objects of the layer, in any order.
func (c *Content) IDs() iter.Seq[object.ID] { return maps.Keys(c.rows) }

// keySize is the length of a key of one of [Tables].
const keySize = 1 + len(segment.LayerID{}) + object.IDSize

func newContent(rows map[object.ID]Row) Content {
	content := Content{Count: len(rows), rows: rows}
	for _, row := range rows {
		for _, value := range [][]byte{row.Value, row.Graph, row.Filter} {
			if value != nil {
				content.Size += keySize + len(value)
			}
		}
	}
	return content
}

// ReadAll returns the content of a layer, false if it has more than countMax objects or sizeMax
// bytes. A row of a commit without its object is left out; fsck reports it.
func (r *Reader) ReadAll(ctx context.Context, countMax, sizeMax int) (content Content, ok bool, err error) {
	if rows, ok := r.copied(); ok {
		if len(rows) > countMax {
			return content, false, nil
		}
		content = newContent(rows)
		return content, content.Size <= sizeMax, nil
	}
	content.rows = make(map[object.ID]Row)
	for _, table := range Tables {
		for pair, err := range r.Keys.Scan(ctx, Range(table, r.ID)) {
			if err != nil {
				return content, false, err
			}
			id, ok := IDOfKey(pair.Key)
			row, known := content.rows[id]
			if !ok || !known && table != TableObject {
				continue
			}
			*row.in(table) = bytes.Clone(pair.Value)
			content.rows[id] = row
			content.Size += len(pair.Key) + len(pair.Value)
			if content.Count = len(content.rows); content.Count > countMax || content.Size > sizeMax {
				return content, false, nil
			}
		}
	}
	return content, true, nil
}

// copied returns the rows of a frozen layer if its copy has all of them.
func (r *Reader) copied() (rows map[object.ID]Row, ok bool) {
	l := r.Layer()
	if l == nil {
		return nil, false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.rows, l.sealed && len(l.bare) == 0
}

// Merge puts the rows of layers into another layer, which is new and takes no other writes, and
// returns them. Of rows of the same object it takes the first.
func Merge(b *kv.Batch, into segment.LayerID, contents []Content) map[object.ID]Row {
	merged := make(map[object.ID]Row)
	for _, content := range contents {
		for id, row := range content.rows {
			if first, again := merged[id]; again {
				row = first.or(row)
			}
			merged[id] = row
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(merged), object.ID.Compare) {
		row := merged[id]
		row.Put(b, into, id)
	}
	return merged
}

// or returns r with what it lacks from another row of the same object.
func (r Row) or(other Row) Row {
	if r.Graph == nil {
		r.Graph = other.Graph
	}
	if r.Filter == nil {
		r.Filter = other.Filter
	}
	return r
}
