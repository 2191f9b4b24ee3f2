package hot

import (
	"bytes"
	"context"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Content is all rows of a layer that takes no more writes.
type Content struct {
	Count, Size int // of objects; in bytes, keys included
	rows        []kv.Pair
}

// ReadAll returns the content of a layer, false if it has more than countMax objects or sizeMax
// bytes.
func ReadAll(
	ctx context.Context, keys kv.Reader, layer segment.LayerID, countMax, sizeMax int,
) (content Content, ok bool, err error) {
	for _, table := range Tables {
		for pair, err := range keys.Scan(ctx, Range(table, layer)) {
			if err != nil {
				return content, false, err
			}
			if table == TableObject {
				content.Count++
			}
			content.Size += len(pair.Key) + len(pair.Value)
			if content.Count > countMax || content.Size > sizeMax {
				return content, false, nil
			}
			content.rows = append(content.rows, kv.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value)})
		}
	}
	return content, true, nil
}

// Merge puts the rows of layers into another layer, which is new and takes no other writes. Of rows
// of the same object it takes the first.
func Merge(b *kv.Batch, into segment.LayerID, contents []Content) {
	type row struct {
		table byte
		id    object.ID
	}
	taken := make(map[row]struct{})
	for _, content := range contents {
		for _, pair := range content.rows {
			id, ok := IDOfKey(pair.Key)
			if !ok {
				continue // fsck reports it
			}
			key := row{pair.Key[0], id}
			if _, again := taken[key]; again {
				continue
			}
			taken[key] = struct{}{}
			b.Put(Key(key.table, into, id), pair.Value)
		}
	}
}
