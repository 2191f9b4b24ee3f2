package lines_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"packhorse/engine/diff/lines"
)

// BenchmarkDiff compares contents of 20,000 lines that differ in so many places, and writes no
// hunks.
func BenchmarkDiff(b *testing.B) {
	for _, edits := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint(edits), func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 2))
			line := func() string { return fmt.Sprintf("\tvalue[%d] = compute(%d)\n", random.IntN(50), random.IntN(400)) }
			all := make([]string, 20_000)
			for i := range all {
				all[i] = line()
			}
			before := []byte(strings.Join(all, ""))
			for range edits {
				all[random.IntN(len(all))] = line()
			}
			after := []byte(strings.Join(all, ""))
			b.SetBytes(int64(len(before) + len(after)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := lines.Changes(b.Context(), before, after, lines.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
