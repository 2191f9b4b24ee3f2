package blame_test

import (
	"slices"
	"strings"
	"testing"

	"packhorse/engine/blame"
)

// FuzzBlameRange holds that a range is refused or selects lines of the file, each once and in
// order, and that a second range takes none of them away.
func FuzzBlameRange(f *testing.F) {
	for _, ranges := range blameRanges {
		f.Add(ranges[0], ranges[len(ranges)-1])
	}
	_, view, tip := newRanged(f)
	count := len(strings.Split(rangedFile, "\n"))
	f.Fuzz(func(t *testing.T, first, second string) {
		one, ok := ourBlame(t, view, tip, "file", blame.Options{Ranges: []string{first}})
		both, okBoth := ourBlame(t, view, tip, "file", blame.Options{Ranges: []string{first, second}})
		if okBoth && !ok {
			t.Fatalf("%q is refused alone, and not before %q", first, second)
		}
		for _, selected := range [][]blamed{one, both} {
			last := 0
			for _, line := range selected {
				if line.final <= last || line.final > count {
					t.Fatalf("%q, %q: line %d after line %d, of %d", first, second, line.final, last, count)
				}
				last = line.final
			}
		}
		if !okBoth {
			return
		}
		for _, line := range one {
			if !slices.Contains(both, line) {
				t.Errorf("%q selects line %d, and not with %q behind it", first, line.final, second)
			}
		}
	})
}
