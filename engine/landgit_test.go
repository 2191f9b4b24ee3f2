package engine_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
)

// TestLandAgainstGit lands branches that change, add, rename and remove the same few files, and
// lets git make the same merges. Git also judges what each clash says: its paths conflict with the
// tip that it names, and not with the one before.
func TestLandAgainstGit(t *testing.T) {
	t.Parallel()
	for round := range oracle.CaseCount(t, 6, 2) {
		landRound(t, round)
	}
}

func landRound(t *testing.T, round int) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(round), 11))
	w := newLandWorld(t, random, 24)
	outcome, err := w.repo.Land(t.Context(), acme, engine.LandRequest{
		Target: engine.MergeBranch{Name: "main"}, Sources: sourcesNamed(w.branches...), Author: thor,
	})
	must(t, err)
	view, err := w.repo.Objects(t.Context())
	must(t, err)
	defer view.Close()
	tips := []string{w.git.Git("rev-parse", "main")} // in git, from the target at first on
	byIndex := make(map[int]int)                     // of the sources, to those of their tips
	count := make(map[engine.LandKind]int)
	for i, s := range outcome.Sources {
		count[s.Kind]++
		tree, paths := w.mergeTree(t, tips[len(tips)-1], w.branches[i])
		switch {
		case s.Kind == engine.LandNothing:
			continue
		case (s.Kind == engine.LandMerged) != (len(paths) == 0) || !slices.Equal(s.Paths, paths):
			t.Fatalf("round %d: %s: %s %v, git conflicts at %v", round, w.branches[i], s.Kind, s.Paths, paths)
		case s.Kind == engine.LandMerged:
			row, err := view.Graph(t.Context(), s.Commit)
			must(t, err)
			if row.Tree.String() != tree {
				t.Fatalf("round %d: %s came to tree %s, in git %s", round, w.branches[i], row.Tree, tree)
			}
			tips = append(tips, w.git.Git("commit-tree", tree, "-p", tips[len(tips)-1], "-p", w.branches[i], "-m", "m"))
			byIndex[i] = len(tips) - 1
			continue
		}
		var named []string
		for _, c := range s.Clashes {
			at := byIndex[c.Index]
			if c.Target {
				at = 0
			}
			if _, there := w.mergeTree(t, tips[at], w.branches[i]); !containsAll(there, c.Paths) {
				t.Errorf("round %d: %s clashes with %+v, which conflicts at %v", round, w.branches[i], c, there)
			}
			if at > 0 {
				if _, before := w.mergeTree(t, tips[at-1], w.branches[i]); slices.ContainsFunc(before, func(path string) bool {
					return slices.Contains(c.Paths, path)
				}) {
					t.Errorf("round %d: %s clashes with %+v, but before it at %v", round, w.branches[i], c, before)
				}
			}
			named = append(named, c.Paths...)
		}
		if slices.Sort(named); !slices.Equal(named, paths) {
			t.Errorf("round %d: %s conflicts at %v, its clashes name %v", round, w.branches[i], paths, named)
		}
	}
	t.Logf("round %d: %v", round, count)
	if count[engine.LandMerged] == 0 || count[engine.LandConflicted] == 0 {
		t.Errorf("round %d: %v", round, count)
	}
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(path string) bool { return !slices.Contains(all, path) })
}

// landWorld is a repository, and in git, with branches to land on main.
type landWorld struct {
	git      *oracle.Repository
	repo     *engine.Repository
	branches []string
}

func newLandWorld(t *testing.T, random *rand.Rand, count int) *landWorld {
	t.Helper()
	w := &landWorld{git: oracle.New(t)}
	files := make(map[string][]string)
	for i := range 12 {
		for line := range 30 {
			path := fmt.Sprintf("d%d/f%d", i%3, i)
			files[path] = append(files[path], fmt.Sprintf("%d of %d\n", line, i))
		}
	}
	var in bytes.Buffer
	write := func(mark int, branch string, from int, files map[string][]string) {
		fmt.Fprintf(&in, "commit refs/heads/%s\nmark :%d\ncommitter C <c@d> %d +0000\ndata 0\n", branch, mark, mark)
		if from > 0 {
			fmt.Fprintf(&in, "from :%d\n", from)
		}
		in.WriteString("deleteall\n")
		for _, path := range slices.Sorted(maps.Keys(files)) {
			text := strings.Join(files[path], "")
			fmt.Fprintf(&in, "M 644 inline %s\ndata %d\n%s\n", path, len(text), text)
		}
	}
	write(1, "main", 0, files)
	states := []map[string][]string{nil, files} // by mark
	for n := range count {
		from := 1
		if random.IntN(4) == 0 {
			from = 1 + random.IntN(len(states)-1)
		}
		next := maps.Clone(states[from])
		for range 1 + random.IntN(3) {
			diverge(random, next)
		}
		states = append(states, next)
		w.branches = append(w.branches, fmt.Sprintf("b%02d", n))
		write(len(states)-1, w.branches[n], from, next)
	}
	states = append(states, maps.Clone(files))
	diverge(random, states[len(states)-1])
	write(len(states)-1, "main", 1, states[len(states)-1])
	w.git.Input(in.Bytes(), "fast-import", "--quiet", "--date-format=raw")
	random.Shuffle(count, func(i, j int) { w.branches[i], w.branches[j] = w.branches[j], w.branches[i] })

	w.repo = enginetest.Create(t, enginetest.Open(t), "r")
	var commands []engine.Command
	for _, name := range append([]string{"main"}, w.branches...) {
		commands = append(commands, engine.Command{Name: "refs/heads/" + name, New: mustID(t, w.git.Git("rev-parse", name))})
	}
	pack := w.git.Input(nil, "pack-objects", "--all", "--stdout", "-q")
	enginetest.Push(t, w.repo, pack, commands...)
	return w
}

// diverge changes one of few files.
func diverge(random *rand.Rand, files map[string][]string) {
	paths := slices.Sorted(maps.Keys(files))
	path := paths[random.IntN(len(paths))]
	switch text := slices.Clone(files[path]); random.IntN(10) {
	case 0:
		delete(files, path)
		files[fmt.Sprint("d3/", random.IntN(6))] = text
	case 1:
		delete(files, path)
	case 2:
		files[fmt.Sprint("new/", random.IntN(6))] = []string{fmt.Sprintf("new %d\n", random.IntN(50))}
	default:
		text[random.IntN(len(text))] = fmt.Sprintf("changed %d\n", random.IntN(1000))
		files[path] = text
	}
}

// mergeTree merges a branch into a tip in git, and returns the tree and the paths that conflict.
func (w *landWorld) mergeTree(t *testing.T, tip, branch string) (tree string, paths []string) {
	t.Helper()
	w.git.Git("update-ref", "refs/heads/main", tip) // main is in the names of files that make room
	out, err := w.git.Try(nil, "merge-tree", "--write-tree", "--name-only", "--no-messages", "main", branch)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		paths = slices.Compact(slices.Sorted(slices.Values(lines[1:])))
	}
	return lines[0], paths
}
