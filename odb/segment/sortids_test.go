package segment_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// TestSortIDs sorts IDs of different spread.
func TestSortIDs(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	for _, count := range []int{0, 1, 511, 512, 5000} {
		for _, firsts := range []int{1, 2, 256} {
			ids := make([]object.ID, count)
			for i := range ids {
				for k := range ids[i] {
					ids[i][k] = byte(random.IntN(256))
				}
				ids[i][0] = byte(random.IntN(firsts) * 255 / max(firsts-1, 1))
				if i > 0 && random.IntN(5) == 0 {
					ids[i] = ids[random.IntN(i)]
				}
			}
			want := slices.Clone(ids)
			slices.SortFunc(want, object.ID.Compare)
			want = slices.Compact(want)
			if got := segment.SortIDs(ids); !slices.Equal(got, want) {
				t.Errorf("%d IDs of %d first bytes: %d sorted, want %d", count, firsts, len(got), len(want))
			}
		}
	}
}

func BenchmarkSortIDs(b *testing.B) {
	random := rand.New(rand.NewPCG(9, 10))
	ids := make([]object.ID, 10_000)
	for i := range ids {
		for k := range ids[i] {
			ids[i][k] = byte(random.IntN(256))
		}
	}
	work := make([]object.ID, len(ids))
	for b.Loop() {
		copy(work, ids)
		segment.SortIDs(work)
	}
}
