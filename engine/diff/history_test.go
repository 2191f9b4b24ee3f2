package diff_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/engine/diff"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
)

// fileDiff is the diff of one changed file.
type fileDiff struct {
	raw, text            string
	additions, deletions int
}

// diffTally is how a comparison of diffs went.
type diffTally struct {
	steps, files        int
	raws, texts, counts int // that differ
}

func (a diffTally) String() string {
	return fmt.Sprintf("%d steps, %d files: %d differ in status, score or path, %d in text, %d in counts", a.steps,
		a.files, a.raws, a.texts, a.counts)
}

// ourDiff is the diff of a step by package diff, with the renames and texts of git diff-tree -p -M
// --full-index.
func ourDiff(tb testing.TB, view *odb.View, s oracle.Step) []fileDiff {
	tb.Helper()
	ctx := tb.Context()
	var list []fileDiff
	for c, err := range diff.Changes(ctx, view, treeID(tb, s.Before), treeID(tb, s.After), nil) {
		if err != nil {
			tb.Fatal(err)
		}
		text, err := diff.NewText(ctx, view, &c, diff.TextOptions{})
		if err != nil {
			tb.Fatal(err)
		}
		var out bytes.Buffer
		if err := text.Write(ctx, &out); err != nil {
			tb.Fatal(err)
		}
		list = append(list, fileDiff{rawLine(&c), out.String(), text.Additions, text.Deletions})
	}
	return list
}

// theirDiff parses the output of git diff-tree --raw -p.
func theirDiff(said []byte) []fileDiff {
	var list []fileDiff
	text, at := "", 0
	end := func() {
		if text == "" {
			return
		}
		if list[at].text != "" && !isSecondPart(&list[at], text) {
			at++
		}
		list[at].text += text
		text = ""
	}
	for line := range strings.Lines(string(said)) {
		switch {
		case strings.HasPrefix(line, ":"):
			list = append(list, fileDiff{raw: line})
		case strings.HasPrefix(line, "diff --git "):
			end()
			text = line
		case text != "":
			text += line
		}
	}
	end()
	for i := range list {
		list[i].count()
	}
	return list
}

// count counts the lines that begin with a sign behind the first hunk's header.
func (f *fileDiff) count() {
	inHunks := false
	for line := range strings.Lines(f.text) {
		switch {
		case strings.HasPrefix(line, "diff --git "):
			inHunks = false
		case line[0] == '@':
			inHunks = true
		case inHunks && line[0] == '+':
			f.additions++
		case inHunks && line[0] == '-':
			f.deletions++
		}
	}
}

// isSecondPart reports whether text creates the file that a change of type has deleted.
func isSecondPart(f *fileDiff, text string) bool {
	letter := strings.Fields(f.raw)[4]
	return letter == "T" && strings.Count(f.text, "\ndeleted file mode") == 1 &&
		!strings.Contains(f.text, "\nnew file mode") &&
		strings.HasPrefix(text, strings.SplitAfter(f.text, "\n")[0])
}

// compareDiffs compares our diffs of steps with git's.
func compareDiffs(t *testing.T, git *oracle.Repository, steps []oracle.Step) diffTally {
	t.Helper()
	view := odbtest.Clone(t, git)
	theirs := openDiffStream(t, git.Dir, steps, "-p", "-M", "--full-index", "--raw")
	var tally diffTally
	for i, s := range steps {
		var following *oracle.Step
		if i+1 < len(steps) {
			following = &steps[i+1]
		}
		tally.compare(t, s, ourDiff(t, view, s), theirDiff(theirs.answer(s, following)))
	}
	theirs.close()
	return tally
}

const complaintsMax = 10

func (a *diffTally) compare(t *testing.T, s oracle.Step, got, want []fileDiff) {
	t.Helper()
	a.steps++
	a.files += len(want)
	for i := range max(len(got), len(want)) {
		var ours, theirs fileDiff
		if i < len(got) {
			ours = got[i]
		}
		if i < len(want) {
			theirs = want[i]
		}
		if ours == theirs {
			continue
		}
		switch {
		case ours.raw != theirs.raw:
			a.raws++
		case ours.text != theirs.text:
			a.texts++
		default:
			a.counts++
		}
		if a.raws+a.texts+a.counts <= complaintsMax {
			t.Errorf("%s %s\nours   %.3000s\n%+d %+d\n%.3000s\ntheirs %.3000s\n%+d %+d\n%.3000s", s.Before, s.After,
				ours.raw, ours.additions, -ours.deletions, ours.text, theirs.raw, theirs.additions, -theirs.deletions, theirs.text)
		}
	}
}

// TestDiffsOfHistories compares our diffs of generated histories with git's, byte by byte.
func TestDiffsOfHistories(t *testing.T) {
	t.Parallel()
	histories := 6
	if testing.Short() {
		histories = 2
	}
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			git.Evolve(rand.New(rand.NewPCG(seed, 6)), nil, 60)
			steps := git.Steps(1000)
			for i := range steps { // further apart, more happens at once
				steps = append(steps, oracle.Step{Before: steps[min(i+10, len(steps)-1)].Before, After: steps[i].After})
			}
			steps = slices.DeleteFunc(steps, func(s oracle.Step) bool { return s.Before == s.After })
			tally := compareDiffs(t, git, steps)
			t.Log(tally)
			if tally.files < 300 {
				t.Errorf("hardly anything was compared: %v", tally)
			}
		})
	}
}

// TestDiffsOfRepository compares our diffs with git's, for a real repository: the newest commits of
// its branches, as many as PACKHORSE_REAL_COUNT says, or all.
func TestDiffsOfRepository(t *testing.T) {
	git := oracle.Real(t)
	t.Log(compareDiffs(t, git, git.Steps(oracle.RealCount(t, 1<<30))))
}
