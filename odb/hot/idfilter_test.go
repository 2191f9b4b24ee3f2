package hot

import (
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/pack/object"
)

func TestIDFilter(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{7})
	draw := func() (id object.ID) {
		_, _ = random.Read(id[:])
		return id
	}
	for _, count := range []int{0, 1, 3, 4, 100, 1000, 5000} {
		ids := make([]object.ID, count)
		for i := range ids {
			ids[i] = draw()
		}
		f := newIDFilter(slices.Values(ids), count)
		for _, id := range ids {
			if !f.mayHave(id) {
				t.Fatalf("%d IDs: the filter lacks %s", count, id)
			}
		}
		const others = 10_000
		passed := 0
		for range others {
			if f.mayHave(draw()) {
				passed++
			}
		}
		if passed > others*2/100 {
			t.Errorf("%d IDs: %d of %d others pass", count, passed, others)
		}
	}
}
