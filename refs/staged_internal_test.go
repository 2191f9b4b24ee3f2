package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// What is read over batches that are staged is what is read once they have been applied.
func TestStaged(t *testing.T) {
	t.Parallel()
	keys := odbtest.OpenKeys(t, vfs.NewMem())
	defer keys.Close() //nolint:errcheck // in memory
	ctx := t.Context()
	key := rapid.Custom(func(t *rapid.T) []byte {
		return fmt.Appendf(nil, "k%02d", rapid.IntRange(0, 30).Draw(t, "key"))
	})
	draw := func(t *rapid.T, batch *kv.Batch) {
		for range rapid.IntRange(0, 12).Draw(t, "operations") {
			if k := key.Draw(t, "key"); rapid.Bool().Draw(t, "delete") {
				batch.Delete(k)
			} else {
				batch.Put(k, rapid.SliceOfN(rapid.Byte(), 0, 2).Draw(t, "value"))
			}
		}
	}
	apply := func(t *rapid.T, batch *kv.Batch) {
		if _, err := keys.Apply(ctx, batch); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		stored := kv.NewBatch()
		stored.DeleteRange([]byte("k"), []byte("l"))
		draw(t, stored)
		apply(t, stored)
		over := newStaged(keys)
		var batches []*kv.Batch
		for range rapid.IntRange(1, 3).Draw(t, "batches") {
			batch := kv.NewBatch()
			draw(t, batch)
			over.add(batch)
			batches = append(batches, batch)
		}
		set := kv.ReadSet{}
		for range rapid.IntRange(1, 4).Draw(t, "asked") {
			set.Keys = append(set.Keys, key.Draw(t, "asked"))
			set.Ranges = append(set.Ranges, kv.ScanOptions{
				Start: key.Draw(t, "start"), End: key.Draw(t, "end"), Limit: rapid.IntRange(0, 6).Draw(t, "limit"),
				Reverse: rapid.Bool().Draw(t, "reverse"),
			})
		}
		got := readings(ctx, over, set)
		for _, batch := range batches {
			apply(t, batch)
		}
		if want := readings(ctx, keys, set); !slices.Equal(got, want) {
			t.Fatalf("got %q\nwant %q", got, want)
		}
	})
}

// readings tells what each way to read returns.
func readings(ctx context.Context, reader kv.Reader, set kv.ReadSet) (told []string) {
	rows, err := reader.Read(ctx, set)
	for i, key := range set.Keys {
		value, getErr := reader.Get(ctx, key)
		if !bytes.Equal(value, rows.Values[i]) || (rows.Values[i] == nil) != errors.Is(getErr, kv.ErrNotFound) {
			told = append(told, fmt.Sprintf("Read and Get differ at %s: %v", key, getErr))
		}
		told = append(told, fmt.Sprintf("%s %q %t %v", key, value, rows.Values[i] == nil, err))
	}
	for i, options := range set.Ranges {
		var pairs []kv.Pair
		for pair, err := range reader.Scan(ctx, options) {
			if err != nil {
				told = append(told, err.Error())
			}
			pairs = append(pairs, kv.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value)})
		}
		page := rows.Pages[i]
		if len(pairs)+len(page.Pairs) > 0 && !reflect.DeepEqual(pairs, page.Pairs) && !slices.EqualFunc(pairs, page.Pairs,
			func(a, b kv.Pair) bool { return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) }) {
			told = append(told, fmt.Sprintf("Read has %q, Scan %q", page.Pairs, pairs))
		}
		told = append(told, fmt.Sprintf("%q", pairs))
		if options.Limit == 0 || len(pairs) < options.Limit {
			told = append(told, fmt.Sprint("more: ", page.More))
		}
	}
	return told
}
