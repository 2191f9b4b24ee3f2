package grep_test

import (
	"strings"
	"testing"

	"packhorse/engine/grep"
	"packhorse/fuzz/oracle"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// TestTrigramsSpareReads: after a search, another one passes over the files without its literal, in
// another case too, and over binary ones.
func TestTrigramsSpareReads(t *testing.T) {
	t.Parallel()
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 11, Binary: true, Files: 60})
	view := odbtest.Clone(t, git)
	var files []object.ID
	for line := range strings.Lines(string(git.Input(nil, "ls-tree", "-r", "main"))) {
		id, err := object.ParseID(strings.Fields(line)[2])
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, id)
	}
	for name, test := range map[string]struct {
		bytesMax   int64
		pattern    string
		ignoreCase bool
		min, max   int // of the files that are passed over, of a hundred
	}{
		"a word":             {1 << 20, "wheelbarrow", false, 95, 100},
		"a word in any case": {1 << 20, "(?:two|three) WheelBarrows?", true, 95, 100},
		"too short":          {1 << 20, "qqq", false, 0, 0},
		"no room":            {100, "wheelbarrow", false, 0, 0},
		"room for a part":    {64 << 10, "wheelbarrow", false, 1, 100},
		"without a literal":  {1 << 20, "[wh]eelbarr?", false, 0, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := grep.NewTrigrams(test.bytesMax)
			q := query{pattern: "velocipede", Options: grep.Options{Known: known}}
			if got := searched(t, view, treeOf(t, git, "main"), q); got != "" {
				t.Fatalf("found %q", got)
			}
			pattern, err := grep.Compile(test.pattern, test.ignoreCase)
			if err != nil {
				t.Fatal(err)
			}
			spared := 100 * known.Spares(view.Pool(), files, pattern) / len(files)
			if spared < test.min || spared > test.max {
				t.Errorf("of %d files %d of a hundred are passed over", len(files), spared)
			}
			if known.Bytes() > test.bytesMax {
				t.Errorf("%d bytes, at most %d", known.Bytes(), test.bytesMax)
			}
		})
	}
}
