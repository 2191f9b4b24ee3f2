package kvtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"packhorse/odb/kv"
)

// testRead compares sets of keys and ranges with what Get and Scan return.
func testRead(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	const keys = 40
	apply(t, store, func(b *kv.Batch) {
		for i := 0; i < keys; i += 2 {
			b.Put(fmt.Appendf(nil, "k%02d", i), bytes.Repeat([]byte{byte(i)}, i))
		}
	})
	snapshot, err := store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
	}()
	key := rapid.Custom(func(t *rapid.T) []byte { return fmt.Appendf(nil, "k%02d", rapid.IntRange(0, keys).Draw(t, "key")) })
	rapid.Check(t, func(rt *rapid.T) {
		set := kv.ReadSet{Keys: rapid.SliceOfN(key, 0, 5).Draw(rt, "keys")}
		for range rapid.IntRange(0, 3).Draw(rt, "ranges") {
			set.Ranges = append(set.Ranges, kv.ScanOptions{
				Start: key.Draw(rt, "start"), End: key.Draw(rt, "end"),
				Reverse: rapid.Bool().Draw(rt, "reverse"), Limit: rapid.IntRange(0, 5).Draw(rt, "limit"),
			})
		}
		for _, reader := range []kv.Reader{store, snapshot} {
			checkRead(t, rt, reader, set)
		}
	})
	for _, key := range []string{"absent", "k00"} { // an empty value is one
		rows, err := store.Read(t.Context(), kv.ReadSet{Keys: [][]byte{[]byte(key)}})
		if err != nil || len(rows.Values) != 1 || (rows.Values[0] == nil) != (key == "absent") {
			t.Errorf("read %s: %#v, %v", key, rows.Values, err)
		}
	}
	var limit *kv.LimitError
	if _, err := store.Read(t.Context(), kv.ReadSet{Keys: make([][]byte, kv.ReadCountMax+1)}); !errors.As(err, &limit) {
		t.Errorf("%d keys: %v", kv.ReadCountMax+1, err)
	}
}

func checkRead(t *testing.T, rt *rapid.T, reader kv.Reader, set kv.ReadSet) {
	t.Helper()
	rows, err := reader.Read(t.Context(), set)
	if err != nil {
		rt.Fatal(err)
	}
	if len(rows.Values) != len(set.Keys) || len(rows.Pages) != len(set.Ranges) {
		rt.Fatalf("%d values and %d pages", len(rows.Values), len(rows.Pages))
	}
	for i, key := range set.Keys {
		value, err := reader.Get(t.Context(), key)
		if errors.Is(err, kv.ErrNotFound) != (rows.Values[i] == nil) || !bytes.Equal(value, rows.Values[i]) {
			rt.Fatalf("read %q: %q; get: %q, %v", key, rows.Values[i], value, err)
		}
	}
	for i, options := range set.Ranges {
		limit := options.Limit
		options.Limit = 0
		want, err := collect(t.Context(), reader, options)
		if err != nil {
			rt.Fatal(err)
		}
		more := limit > 0 && len(want) > limit
		if more {
			want = want[:limit]
		}
		var got []string
		for _, pair := range rows.Pages[i].Pairs {
			got = append(got, string(pair.Key)+"="+string(pair.Value))
		}
		if rows.Pages[i].More != more || !slices.Equal(got, want) {
			rt.Fatalf("read %+v: %q, more %v; scan: %q", options, got, rows.Pages[i].More, want)
		}
	}
}

// testReadPages reads ranges that are larger than a page.
func testReadPages(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	apply(t, store, func(b *kv.Batch) {
		for i := range kv.PageCountMax + 1 {
			b.Put(fmt.Appendf(nil, "many%04d", i), nil)
		}
		for i := range 5 {
			b.Put(fmt.Appendf(nil, "large%d", i), make([]byte, kv.PageBytesMax/2))
		}
	})
	of := func(prefix string, limit int) kv.ScanOptions {
		return kv.ScanOptions{Start: []byte(prefix), End: kv.PrefixEnd([]byte(prefix)), Limit: limit}
	}
	rows, err := store.Read(t.Context(), kv.ReadSet{Ranges: []kv.ScanOptions{
		of("many", 0), of("many", kv.PageCountMax), of("many", kv.PageCountMax+1), of("large", 0), of("large", 1), of("other", 0),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		pairs int
		more  bool
	}{{kv.PageCountMax, true}, {kv.PageCountMax, true}, {kv.PageCountMax, true}, {2, true}, {1, true}, {0, false}} {
		if got := rows.Pages[i]; len(got.Pairs) != want.pairs || got.More != want.more {
			t.Errorf("range %d: %d pairs, more %v; want %+v", i, len(got.Pairs), got.More, want)
		}
	}
}

// testReadInstant moves one value between two keys; every Read finds it under one of them.
func testReadInstant(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	keys := [][]byte{[]byte("a"), []byte("b")}
	apply(t, store, func(b *kv.Batch) { b.Put(keys[0], []byte("1")) })
	const moves = 200
	moved := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < moves && err == nil; i++ {
			batch := kv.NewBatch()
			batch.Delete(keys[i%2])
			batch.Put(keys[(i+1)%2], []byte("1"))
			_, err = store.Apply(t.Context(), batch)
		}
		moved <- err
	}()
	set := kv.ReadSet{Ranges: []kv.ScanOptions{{}, {Start: keys[1]}}}
	set.Keys = append(set.Keys, keys[0])
	for i := range 40 { // which take a while
		set.Keys = append(set.Keys, fmt.Appendf(nil, "absent %d", i))
	}
	set.Keys = append(set.Keys, keys[1])
	for done := false; !done; {
		select {
		case err := <-moved:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
		rows, err := store.Read(t.Context(), set)
		if err != nil {
			t.Fatal(err)
		}
		atB := rows.Values[len(rows.Values)-1] != nil
		if (rows.Values[0] != nil) == atB || len(rows.Pages[0].Pairs) != 1 || (len(rows.Pages[1].Pairs) == 1) != atB {
			t.Fatalf("got %+v", rows)
		}
	}
}
