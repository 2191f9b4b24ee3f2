package lines_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/engine/diff/lines"
)

// TestBase compares one base with many texts, some of them several times its size, and holds that
// nothing of a comparison is left for the next.
func TestBase(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 8))
	o := lines.Options{Histogram: true, NoIndent: true}
	ended, end := context.WithCancel(t.Context())
	end()
	for range 100 {
		p := newPair(random)
		base := lines.NewBase(lines.Split(p.old))
		if _, err := base.Diff(ended, lines.Split(p.new), o); len(p.old)+len(p.new) > 0 && !errors.Is(err, context.Canceled) {
			t.Fatalf("compared after the end: %v", err)
		}
		for _, other := range [][]byte{p.new, newPair(random).new, p.old, slices.Concat(p.new, p.new, p.old), nil, p.new} {
			want, err := lines.Changes(t.Context(), p.old, other, o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := base.Diff(t.Context(), lines.Split(other), o)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%.2000q\n%.2000q\n%v, %v, want %v", p.old, other, got, err, want)
			}
		}
	}
}
