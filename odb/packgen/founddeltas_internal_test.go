package packgen

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
	"packhorse/pack/object"
)

// TestFoundDeltasSpill keeps more deltas than memory is allowed for, and reads all of them back.
func TestFoundDeltasSpill(t *testing.T) {
	t.Parallel()
	files, err := file.OpenDir("files", file.DirOptions{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	d := newFoundDeltas(files, 100)
	made := make([]madeDelta, 50)
	for i := range made {
		made[i] = makeDelta(object.ID{byte(i)}, object.TypeBlob, []byte(strings.Repeat(fmt.Sprint("delta ", i), i)))
		if err := d.add(t.Context(), newHandle(0, uint32(i)), &made[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, inMemory := d.content.InMemory(); d.count() != len(made) || inMemory {
		t.Errorf("%d deltas of %d bytes, in memory: %t", d.count(), d.bytes(), inMemory)
	}
	for i := range made {
		found, ok := d.get(newHandle(0, uint32(i)))
		if !ok || found.base != made[i].base || found.size != made[i].size {
			t.Errorf("delta %d: %+v, %v", i, found, ok)
		}
		got, err := d.packed([]byte("before"), &found)
		if want := append([]byte("before"), made[i].packed...); err != nil || !bytes.Equal(got, want) {
			t.Errorf("delta %d: %q, %v, want %q", i, got, err, want)
		}
	}
	if _, ok := d.get(newHandle(1, 1)); ok {
		t.Error("a delta that nobody added")
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if err := files.Close(); err != nil {
		t.Error(err)
	}
}
