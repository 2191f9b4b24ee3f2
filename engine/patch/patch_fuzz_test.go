package patch_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"packhorse/engine/commit"
	"packhorse/engine/patch"
	"packhorse/fuzz/oracle"
	"packhorse/odb/odbtest"
)

// FuzzPatch checks that any bytes are either refused as malformed or produce the same changes each
// time, which can be written.
func FuzzPatch(f *testing.F) {
	git := oracle.New(f)
	git.Evolve(rand.New(rand.NewPCG(1, 6)), map[string]oracle.Leaf{
		"a":     {Mode: "100644", Content: "1\n2\n3\n4\n"},
		"dir/b": {Mode: "100755", Content: "x"},
		"link":  {Mode: "120000", Content: "a"},
		"sub":   {Mode: "160000", Content: strings.Repeat("1", 40)},
	}, 20)
	apply := applyIn(odbtest.Clone(f, git))
	steps := git.Steps(100)
	base := steps[len(steps)-1].After
	for _, s := range steps {
		f.Add(git.Diff(oracle.Step{Before: base, After: s.After}))
	}
	f.Add([]byte("--- a\t2001-02-03 04:05:06 +0100\n+++ a\n@@ -1,2 +1 @@\n-1\n 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		first := apply(t, text, base)
		if again := apply(t, text, base); again.Tree != first.Tree || again.Refusal != first.Refusal {
			t.Errorf("first %+v, then %+v", first, again)
		}
		if err := first.Err; err != nil && !errors.Is(err, patch.ErrMalformed) && !errors.Is(err, patch.ErrEmpty) &&
			!errors.Is(err, patch.ErrTooLarge) && !errors.Is(err, commit.ErrInvalid) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}
