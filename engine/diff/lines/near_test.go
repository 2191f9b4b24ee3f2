package lines_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/engine/diff/lines"
)

// TestSplitNear holds that a text that was made near another one has the same lines as any, and the
// same changes.
func TestSplitNear(t *testing.T) {
	t.Parallel()
	contents := [][]byte{
		nil, []byte("\n"), []byte("\n\n"), []byte("a"), []byte("a\n"), []byte("ab"), []byte("ab\n"), []byte("a\nb"),
		[]byte("a\nb\n"), []byte("b\na\nb\n"), []byte("xa\nb"), []byte("a\na\na\na"), []byte("a\na\na\na\n"),
	}
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 40 {
		var content []byte
		for range random.IntN(100) {
			content = fmt.Appendln(content, random.IntN(12))
		}
		contents = append(contents, content)
		for range i % 4 { // later versions of it
			content = slices.Clone(content)
			at := random.IntN(len(content) + 1)
			content = slices.Insert(content, at, []byte("7\nnew\n")[:random.IntN(7)]...)
			content = content[:len(content)-random.IntN(2)*random.IntN(len(content)+1)]
			contents = append(contents, content)
		}
	}
	for _, before := range contents {
		for _, after := range contents {
			old, plain := lines.Split(before), lines.Split(after)
			hashed := lines.SplitNear(before, lines.Text{})
			for _, near := range []lines.Text{lines.SplitNear(after, old), lines.SplitNear(after, hashed)} {
				if near.Count() != plain.Count() {
					t.Fatalf("%q near %q: %d lines, want %d", after, before, near.Count(), plain.Count())
				}
				for i := range plain.Count() {
					if !bytes.Equal(near.Line(i), plain.Line(i)) {
						t.Fatalf("%q near %q: line %d is %q, want %q", after, before, i, near.Line(i), plain.Line(i))
					}
				}
				for _, o := range []lines.Options{{}, {NoContext: true}, {NoIndent: true, Histogram: true}} {
					want, err := lines.Diff(t.Context(), old, plain, o)
					if err != nil {
						t.Fatal(err)
					}
					for _, text := range []lines.Text{old, hashed} {
						got, err := lines.Diff(t.Context(), text, near, o)
						if err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(got, want) {
							t.Fatalf("%+v: from %q to %q: %+v, want %+v", o, before, after, got, want)
						}
					}
				}
			}
		}
	}
}
