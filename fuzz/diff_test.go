package fuzz

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	treediff "packhorse/engine/diff"
	"packhorse/fuzz/oracle"
)

// fileDiff is what is told of one changed file.
type fileDiff struct {
	raw, text            string
	additions, deletions int
}

// diffTally is how a comparison of diffs went.
type diffTally struct {
	steps, files, applied    int
	refused                  int // patches, by git too
	raws, texts, counts, bad int // that differ; bad are patches that do not make the tree
}

func (a diffTally) String() string {
	return fmt.Sprintf("%d steps, %d files: %d differ in status, score or path, %d in text, %d in counts; %d of %d patches do not apply, and git apply refuses %d too",
		a.steps, a.files, a.raws, a.texts, a.counts, a.bad, a.applied+a.bad, a.refused)
}

// ourDiff is the diff of a step by package diff, with the renames and texts of git diff-tree -p -M --full-index --binary.
func ourDiff(tb testing.TB, w *patchWorld, s oracle.Step, options treediff.TextOptions) []fileDiff {
	tb.Helper()
	ctx := context.Background()
	var list []fileDiff
	for c, err := range treediff.Changes(ctx, w.view, treeID(tb, s.Before), treeID(tb, s.After), nil) {
		if err != nil {
			tb.Fatal(err)
		}
		text, err := treediff.NewText(ctx, w.view, &c, options)
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

// theirDiff takes apart what git diff-tree --raw -p says.
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

// isSecondPart tells whether text creates what a change of type has deleted.
func isSecondPart(f *fileDiff, text string) bool {
	letter := strings.Fields(f.raw)[4]
	return letter == "T" && strings.Count(f.text, "\ndeleted file mode") == 1 && !strings.Contains(f.text, "\nnew file mode") &&
		strings.HasPrefix(text, strings.SplitAfter(f.text, "\n")[0])
}

// compareDiffs compares our diffs of steps with git's, and with patches of ours makes the trees.
func compareDiffs(t *testing.T, w *patchWorld, steps []oracle.Step, apply bool) diffTally {
	t.Helper()
	var tally diffTally
	for _, binary := range []bool{false, true} {
		options := []string{"-p", "-M", "--full-index", "--raw"}
		if binary {
			options = append(options, "--binary")
		}
		git := openDiffStream(t, w.dir, steps, options...)
		for i, s := range steps {
			var following *oracle.Step
			if i+1 < len(steps) {
				following = &steps[i+1]
			}
			want := theirDiff(git.answer(s, following))
			got := ourDiff(t, w, s, treediff.TextOptions{Binary: binary})
			if binary {
				tally.apply(t, w, s, got, apply)
			} else {
				tally.compare(t, s, got, want)
			}
		}
		git.close()
		if !apply {
			break
		}
	}
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

// apply makes the new tree of the old one by all our patches of the step.
func (a *diffTally) apply(t *testing.T, w *patchWorld, s oracle.Step, got []fileDiff, wanted bool) {
	t.Helper()
	if !wanted {
		return
	}
	var all bytes.Buffer
	for i := range got {
		all.WriteString(got[i].text)
	}
	v := w.ours(t, all.Bytes(), s.Before)
	if v.tree == s.After {
		a.applied++
		return
	}
	if theirs, _ := w.newIndex(t).theirs(t, all.Bytes(), s.Before); theirs.tree == "" {
		a.refused++ // git apply cannot say it either
		return
	}
	if a.bad++; a.bad <= complaintsMax {
		t.Errorf("%s %s: our patch makes %s%s\n%.3000s", s.Before, s.After, v.tree, v.refusal, all.Bytes())
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
			w := newPatchWorld(t, git.Dir)
			steps := oracle.Open(t, w.dir).Steps(1000)
			for i := range steps { // further apart, more happens at once
				steps = append(steps, oracle.Step{Before: steps[min(i+10, len(steps)-1)].Before, After: steps[i].After})
			}
			steps = slices.DeleteFunc(steps, func(s oracle.Step) bool { return s.Before == s.After })
			tally := compareDiffs(t, w, steps, true)
			t.Log(tally)
			if tally.files < 300 || tally.applied < len(steps)/2 {
				t.Errorf("hardly anything was compared: %v", tally)
			}
		})
	}
}

// TestDiffsOfRepository compares our diffs with git's, for a real repository: the newest commits of its branches, as many as
// PACKHORSE_REAL_COUNT says, or all.
func TestDiffsOfRepository(t *testing.T) {
	dir, count := oracle.Real(t).Dir, oracle.RealCount(t, 1<<30)
	w := newPatchWorld(t, dir)
	t.Log(compareDiffs(t, w, oracle.Open(t, dir).Steps(count), true))
}
