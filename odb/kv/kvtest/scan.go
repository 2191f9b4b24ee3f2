package kvtest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"packhorse/odb/kv"
)

func testScan(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	apply(t, store, func(b *kv.Batch) {
		for _, key := range []string{"a", "b", "b\x00", "bb", "c", "\xff", "\xff\xff"} {
			b.Put([]byte(key), []byte("1"))
		}
		b.Put([]byte("deleted"), []byte("1"))
		b.Delete([]byte("deleted"))
	})
	tests := map[string]struct {
		options kv.ScanOptions
		want    []string
	}{
		"all":             {want: []string{"a=1", "b=1", "b\x00=1", "bb=1", "c=1", "\xff=1", "\xff\xff=1"}},
		"start inclusive": {options: kv.ScanOptions{Start: []byte("c")}, want: []string{"c=1", "\xff=1", "\xff\xff=1"}},
		"end exclusive":   {options: kv.ScanOptions{End: []byte("b")}, want: []string{"a=1"}},
		"successor": {
			options: kv.ScanOptions{Start: []byte("b\x00"), End: []byte("bb\x00")}, want: []string{"b\x00=1", "bb=1"},
		},
		"prefix": {
			options: kv.ScanOptions{Start: []byte("b"), End: kv.PrefixEnd([]byte("b"))},
			want:    []string{"b=1", "b\x00=1", "bb=1"},
		},
		"prefix of 0xff": {
			options: kv.ScanOptions{Start: []byte{0xff}, End: kv.PrefixEnd([]byte{0xff})},
			want:    []string{"\xff=1", "\xff\xff=1"},
		},
		"limit": {options: kv.ScanOptions{Start: []byte("b"), Limit: 2}, want: []string{"b=1", "b\x00=1"}},
		"reverse": {
			options: kv.ScanOptions{Start: []byte("b"), End: []byte("c"), Reverse: true},
			want:    []string{"bb=1", "b\x00=1", "b=1"},
		},
		"reverse limit":    {options: kv.ScanOptions{Reverse: true, Limit: 2}, want: []string{"\xff\xff=1", "\xff=1"}},
		"empty range":      {options: kv.ScanOptions{Start: []byte("b"), End: []byte("b")}},
		"ends the wrong":   {options: kv.ScanOptions{Start: []byte("c"), End: []byte("a")}},
		"nothing in range": {options: kv.ScanOptions{Start: []byte("d"), End: []byte("z"), Reverse: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := collect(t.Context(), store, test.options)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// testScanModel compares scans with a sorted slice, over random keys of a small alphabet, so that
// they share prefixes, and enough of them to fill pages.
func testScanModel(t *testing.T, h Harness) {
	t.Helper()
	keys := rapid.SliceOfN(rapid.ByteMax(3), 1, 5)
	store := h.open(t)
	model := make(map[string]string)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		batch := kv.NewBatch()
		for _, key := range rapid.SliceOfN(keys, 0, 200).Draw(t, "puts") {
			value := fmt.Sprint(round, len(model))
			batch.Put(key, []byte(value))
			model[string(key)] = value
		}
		for _, key := range rapid.SliceOfN(keys, 0, 20).Draw(t, "deletes") {
			batch.Delete(key)
			delete(model, string(key))
		}
		if rapid.IntRange(0, 9).Draw(t, "range") == 0 {
			start, end := keys.Draw(t, "from"), keys.Draw(t, "to")
			batch.DeleteRange(start, end)
			for key := range model {
				if key >= string(start) && key < string(end) {
					delete(model, key)
				}
			}
		}
		if _, err := store.Apply(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		options := kv.ScanOptions{
			Start:   rapid.OneOf(rapid.Just([]byte(nil)), keys).Draw(t, "start"),
			End:     rapid.OneOf(rapid.Just([]byte(nil)), keys).Draw(t, "end"),
			Reverse: rapid.Bool().Draw(t, "reverse"),
			Limit:   rapid.IntRange(0, 40).Draw(t, "limit"),
		}
		got, err := collect(t.Context(), store, options)
		if expected := scanModel(model, options); err != nil || !slices.Equal(got, expected) {
			t.Fatalf("scan %+v: got %q, %v; want %q", options, got, err, expected)
		}
	})
}

// scanModel is the expected result of a scan of the pairs in model.
func scanModel(model map[string]string, options kv.ScanOptions) []string {
	var keys []string
	for key := range model {
		if key >= string(options.Start) && (len(options.End) == 0 || key < string(options.End)) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if options.Reverse {
		slices.Reverse(keys)
	}
	if options.Limit > 0 && len(keys) > options.Limit {
		keys = keys[:options.Limit]
	}
	for i, key := range keys {
		keys[i] = key + "=" + model[key]
	}
	return keys
}

// testScanWhileWriting deletes each pair while it is visited, which neither blocks nor makes the
// walk miss pairs, and goes over values that fill several pages.
func testScanWhileWriting(t *testing.T, h Harness) {
	t.Helper()
	for _, reverse := range []bool{false, true} {
		store := h.open(t)
		const count = 3000
		apply(t, store, func(b *kv.Batch) {
			for i := range count {
				b.Put(fmt.Appendf(nil, "%06d", i), bytes.Repeat([]byte{byte(i)}, i%2000))
			}
		})
		visited := 0
		for pair, err := range store.Scan(t.Context(), kv.ScanOptions{Reverse: reverse}) {
			if err != nil {
				t.Fatal(err)
			}
			i := visited
			if reverse {
				i = count - 1 - visited
			}
			if string(pair.Key) != fmt.Sprintf("%06d", i) || !bytes.Equal(pair.Value, bytes.Repeat([]byte{byte(i)}, i%2000)) {
				t.Fatalf("at %d: %q with %d bytes", i, pair.Key, len(pair.Value))
			}
			batch := kv.NewBatch()
			batch.Delete(pair.Key)
			if _, err := store.Apply(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			visited++
		}
		if left, err := collect(t.Context(), store, kv.ScanOptions{}); visited != count || err != nil || len(left) != 0 {
			t.Errorf("visited %d of %d, %d left, %v", visited, count, len(left), err)
		}
	}
}
