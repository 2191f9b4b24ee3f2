package hot

import (
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
	rows        *Rows
}

// IDs returns the objects of the layer, in any order.
func (c *Content) IDs() iter.Seq[object.ID] { return maps.Keys(c.rows.places) }

// keySize is the length of a key of one of [Tables].
const keySize = 1 + len(segment.LayerID{}) + object.IDSize

func newContent(rows *Rows) Content {
	content := Content{Count: rows.count(), rows: rows}
	for _, row := range rows.all() {
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
		if rows.count() > countMax {
			return content, false, nil
		}
		content = newContent(rows)
		return content, content.Size <= sizeMax, nil
	}
	content.rows = newRows()
	for _, table := range Tables {
		for pair, err := range r.Keys.Scan(ctx, Range(table, r.ID)) {
			if err != nil {
				return content, false, err
			}
			id, ok := IDOfKey(pair.Key)
			if !ok || table != TableObject && !content.rows.has(id) {
				continue
			}
			content.rows.putPart(id, table, pair.Value)
			content.Size += len(pair.Key) + len(pair.Value)
			if content.Count = content.rows.count(); content.Count > countMax || content.Size > sizeMax {
				return content, false, nil
			}
		}
	}
	return content, true, nil
}

// copied returns the rows of a frozen layer if its copy has all of them.
func (r *Reader) copied() (rows *Rows, ok bool) {
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
func Merge(b *kv.Batch, into segment.LayerID, contents []Content) *Rows {
	count, used := 0, 0
	for i := range contents {
		count, used = count+contents[i].Count, used+contents[i].rows.used
	}
	merged := newRowsFor(count, used)
	for _, content := range contents {
		for id, row := range content.rows.all() {
			first, again := merged.get(id)
			if !again {
				merged.put(id, row)
				continue
			}
			if first.Graph == nil {
				merged.putPart(id, TableGraph, row.Graph)
			}
			if first.Filter == nil {
				merged.putPart(id, TableFilter, row.Filter)
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(merged.places), object.ID.Compare) {
		row, _ := merged.get(id)
		row.Put(b, into, id)
	}
	return merged
}
