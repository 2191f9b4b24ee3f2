package extsort

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/odb/file"
)

// TestSorterBeyondMemory is a look inside because reaching the limit from outside takes a million
// objects.
func TestSorterBeyondMemory(t *testing.T) {
	t.Parallel()
	files, err := file.OpenDir("files", file.DirOptions{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{0, 1, 99, 100, 101, 1000, 1234} {
		for _, width := range []int{3, 8, 45} {
			t.Run(fmt.Sprintf("%d of %d bytes", count, width), func(t *testing.T) {
				s := New(files, width)
				s.max = 100
				random := rand.New(rand.NewPCG(uint64(count), uint64(width)))
				var want [][]byte
				for range count {
					record := make([]byte, width)
					for i := range record {
						record[i] = byte(random.IntN(3)) // many begin alike
					}
					want = append(want, record)
					if err := s.Add(t.Context(), record); err != nil {
						t.Fatal(err)
					}
				}
				slices.SortFunc(want, bytes.Compare)
				for range 2 { // it can be walked again, also after a walk that was left
					for _, err := range s.All(t.Context()) {
						if err != nil {
							t.Fatal(err)
						}
						break
					}
					var got [][]byte
					for record, err := range s.All(t.Context()) {
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, bytes.Clone(record))
					}
					if !slices.EqualFunc(got, want, bytes.Equal) {
						t.Fatalf("%d records, not in order or not those that were added", len(got))
					}
				}
				if s.scratch != nil && count <= 100 {
					t.Error("a scratch file for what fits in memory")
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
}
