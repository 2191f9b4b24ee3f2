package kvtest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"packhorse/odb/kv"
)

// testExport reads an export after the time of a snapshot has passed: it has what was visible when
// it was made, whatever was written since.
func testExport(t *testing.T, h Harness) {
	t.Helper()
	const age = 50 * time.Millisecond
	store := h.Open(t, age)
	closeAtEnd(t, store)
	exporter, ok := store.(kv.Exporter)
	if !ok {
		t.Skip("the store makes no exports")
	}
	put := func(value string, keys ...string) {
		apply(t, store, func(b *kv.Batch) {
			for _, key := range keys {
				b.Put([]byte(key), []byte(value))
			}
		})
	}
	put("1", "a", "b", "d")
	snapshot, err := store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	export, err := exporter.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put("2", "a", "c")
	apply(t, store, func(b *kv.Batch) { b.Delete([]byte("d")) })
	for err == nil { // until its time is over
		_, err = snapshot.Get(t.Context(), []byte("a"))
	}
	if err := errors.Join(expired(err), snapshot.Close()); err != nil {
		t.Error(err)
	}
	pairs, err := collect(t.Context(), export, kv.ScanOptions{})
	if wanted := []string{"a=1", "b=1", "d=1"}; err != nil || !slices.Equal(pairs, wanted) {
		t.Errorf("the export has %q, %v; want %q", pairs, err, wanted)
	}
	want(t, export, "a", "1")
	want(t, export, "c", "")
	rows, err := export.Read(t.Context(), kv.ReadSet{Keys: [][]byte{[]byte("d"), []byte("c")}})
	if err != nil || string(rows.Values[0]) != "1" || rows.Values[1] != nil {
		t.Errorf("read %q, %v", rows.Values, err)
	}
	for range 2 {
		if err := export.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := export.Get(t.Context(), []byte("a")); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("get from a closed export: %v", err)
	}
}

// expired returns an error that is not that of a snapshot whose time is over.
func expired(err error) error {
	if errors.Is(err, kv.ErrSnapshotExpired) {
		return nil
	}
	return err
}
