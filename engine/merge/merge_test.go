package merge_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"packhorse/engine/merge"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// pair is two commits to merge.
type pair struct{ ours, theirs string }

// verdict is the outcome of a merge: the tree, and the sorted paths that conflict.
type verdict struct {
	clean     bool
	tree      string
	conflicts []string
	kinds     []merge.Kind // ours only
}

// theirMerges asks git to merge pairs of commits, which adds nothing to the repository. Of some
// merges git dies by an assertion of its own: they have no tree.
func theirMerges(tb testing.TB, dir, objects string, pairs []pair) []verdict {
	tb.Helper()
	if len(pairs) == 0 {
		return nil
	}
	for _, name := range []string{"info", "pack"} {
		if err := os.MkdirAll(filepath.Join(objects, name), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	var in bytes.Buffer
	for _, p := range pairs {
		fmt.Fprintf(&in, "%s %s\n", p.ours, p.theirs)
	}
	cmd := exec.Command("git", "merge-tree", "--write-tree", "--stdin", "-z", "--name-only", "--no-messages",
		"--allow-unrelated-histories")
	cmd.Env = mergeEnv(dir, objects)
	cmd.Stdin = &in
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	switch {
	case err == nil:
	case !strings.Contains(complaints.String(), "Assertion"):
		tb.Fatalf("git merge-tree: %v: %s", err, complaints.String())
	case len(pairs) == 1:
		return make([]verdict, 1)
	default:
		half := len(pairs) / 2
		return append(theirMerges(tb, dir, objects, pairs[:half]), theirMerges(tb, dir, objects, pairs[half:])...)
	}
	tokens := strings.Split(string(out), "\x00")
	next := func() string {
		token := tokens[0]
		tokens = tokens[1:]
		return token
	}
	verdicts := make([]verdict, len(pairs))
	for i := range verdicts {
		v := &verdicts[i]
		v.clean, v.tree = next() == "1", next()
		for path := next(); path != ""; path = next() {
			v.conflicts = append(v.conflicts, path)
		}
	}
	return verdicts
}

// mergeEnv makes git write objects elsewhere than into the repository.
func mergeEnv(dir, objects string) []string {
	return append(oracle.Env(dir), "GIT_OBJECT_DIRECTORY="+objects,
		"GIT_ALTERNATE_OBJECT_DIRECTORIES="+filepath.Join(dir, "objects"))
}

// isBroken reports whether a tree of git's names a submodule without a commit.
func isBroken(tb testing.TB, dir, objects, tree string) bool {
	tb.Helper()
	cmd := exec.Command("git", "ls-tree", "-r", tree)
	cmd.Env = mergeEnv(dir, objects)
	out, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Contains(string(out), "160000 commit "+object.ZeroID.String())
}

// mergers merges commits with package merge.
type mergers struct {
	view      *odb.View
	relations *revwalk.Relations
	// kept makes all merges, and written has what it wrote.
	kept    *merge.Merger
	written *odb.Quarantine
}

func newMergers(tb testing.TB, view *odb.View) *mergers {
	tb.Helper()
	m := &mergers{view: view, relations: revwalk.NewRelations(view), written: view.NewQuarantine(tb.Context())}
	tb.Cleanup(func() {
		if err := m.written.Close(); err != nil {
			tb.Error(err)
		}
	})
	m.kept = merge.NewMerger(view, m.relations)
	return m
}

// merge merges two commits twice: with a merger that has made no merge yet, and with the one that
// has made those before.
func (m *mergers) merge(tb testing.TB, p pair) verdict {
	tb.Helper()
	v, result := ourMerge(tb, merge.NewMerger(m.view, m.relations), m.relations, p)
	again, late := ourMerge(tb, m.kept, m.relations, p)
	if !reflect.DeepEqual(v, again) {
		tb.Errorf("merge %s and %s: %v, and after other merges %v", p.ours, p.theirs, v, again)
	}
	if v.clean {
		checkStored(tb, m.view, result)
		if err := late.Write(tb.Context(), m.written); err != nil {
			tb.Errorf("store tree %s: %v", late.Tree, err)
		}
		countFresh(tb, m.view, m.written, late.Tree)
	}
	return v
}

// ourMerge merges two commits.
func ourMerge(tb testing.TB, merger *merge.Merger, relations *revwalk.Relations, p pair) (verdict, *merge.Result) {
	tb.Helper()
	ours, err := object.ParseID(p.ours)
	if err != nil {
		tb.Fatal(err)
	}
	theirs, err := object.ParseID(p.theirs)
	if err != nil {
		tb.Fatal(err)
	}
	bases, err := relations.MergeBases(tb.Context(), ours, theirs)
	if err != nil {
		tb.Fatal(err)
	}
	result, err := merger.Commits(tb.Context(), ours, theirs, bases, merge.Options{
		Ours: p.ours, Theirs: p.theirs, Unrelated: true,
	})
	if err != nil {
		tb.Errorf("merge %s and %s: %v", p.ours, p.theirs, err)
		return verdict{}, nil
	}
	v := verdict{clean: result.Clean(), tree: result.Tree.String()}
	for i := range result.Conflicts {
		c := &result.Conflicts[i]
		v.kinds = append(v.kinds, c.Kind)
		if c.Staged() {
			v.conflicts = append(v.conflicts, c.Path)
		}
	}
	return v, result
}

// checkStored stores the objects of a clean merge, and checks that all of its tree is stored and no
// other object of the merge.
func checkStored(tb testing.TB, view *odb.View, result *merge.Result) {
	tb.Helper()
	ctx := tb.Context()
	q := view.NewQuarantine(ctx)
	defer q.Close()
	if err := result.Write(ctx, q); err != nil {
		tb.Errorf("store tree %s: %v", result.Tree, err)
		return
	}
	fresh := countFresh(tb, view, q, result.Tree)
	if extra := q.Count() - fresh; extra > 1 || extra == 1 && result.Tree != object.EmptyTreeID {
		tb.Errorf("tree %s needs %d new objects, and %d were stored", result.Tree, fresh, q.Count())
	}
}

// countFresh returns how many objects of a tree are in q and not in view, and checks that none is
// missing.
func countFresh(tb testing.TB, view *odb.View, q *odb.Quarantine, tree object.ID) int {
	tb.Helper()
	ctx := tb.Context()
	fresh := make(map[object.ID]bool)
	var walk func(id object.ID, mode object.Mode)
	walk = func(id object.ID, mode object.Mode) {
		stored, err := view.Has(ctx, id)
		if err != nil || stored || mode.IsGitlink() || fresh[id] || id == object.EmptyTreeID {
			return
		}
		fresh[id] = true
		_, data, err := q.View().Read(ctx, id)
		if err != nil {
			tb.Errorf("read %s: %v", id, err)
			return
		}
		if mode.IsTree() {
			it := object.IterTree(data)
			for it.Next() {
				walk(it.ID, it.Mode)
			}
		}
	}
	walk(tree, object.ModeTree)
	return len(fresh)
}

// compareMerges merges pairs both ways and returns how many came to another verdict or tree, and
// how many to other conflicts.
//
// A difference is not counted where git's tree names a submodule without a commit: git 2.39 loses
// our file when it moves it after a folder of theirs and the base has a folder in its place. The
// merge conflicts in any case.
func compareMerges(
	t *testing.T, git *oracle.Repository, pairs []pair, complain func(format string, args ...any),
) (trees, paths int, kinds map[merge.Kind]int) {
	t.Helper()
	kinds = make(map[merge.Kind]int)
	ourMergers, objects := newMergers(t, odbtest.Clone(t, git)), t.TempDir()
	for i, theirs := range theirMerges(t, git.Dir, objects, pairs) {
		ours := ourMergers.merge(t, pairs[i])
		if theirs.tree == "" {
			continue
		}
		for _, kind := range ours.kinds {
			kinds[kind]++
		}
		sameTree, samePaths := ours.tree == theirs.tree && ours.clean == theirs.clean, slices.Equal(ours.conflicts,
			theirs.conflicts)
		if !sameTree && !theirs.clean && !ours.clean && samePaths && isBroken(t, git.Dir, objects, theirs.tree) {
			continue
		}
		if !sameTree {
			trees++
		}
		if !samePaths {
			paths++
		}
		if !sameTree || !samePaths {
			complain("git merge-tree --write-tree %s %s\nours: %v %s %q\ngit:  %v %s %q", pairs[i].ours, pairs[i].theirs,
				ours.clean, ours.tree, ours.conflicts, theirs.clean, theirs.tree, theirs.conflicts)
		}
	}
	return trees, paths, kinds
}

// TestMergesAreThoseOfGit merges generated histories in which everything happens that can conflict.
func TestMergesAreThoseOfGit(t *testing.T) {
	t.Parallel()
	count := oracle.CaseCount(t, 400, 60)
	git := oracle.New(t)
	seed := uint64(1)
	if s, err := strconv.ParseUint(os.Getenv("PACKHORSE_MERGE_SEED"), 10, 64); err == nil {
		seed = s
	}
	git.Input(mergeHistories(rand.New(rand.NewPCG(seed, 9)), count), "fast-import", "--quiet", "--done",
		"--date-format=raw")
	pairs := make([]pair, count)
	tips := strings.Fields(git.Git("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads/ours",
		"refs/heads/theirs"))
	for i := 0; i < len(tips); i += 2 {
		side, number, _ := strings.Cut(tips[i], "/")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		if side == "ours" {
			pairs[n].ours = tips[i+1]
		} else {
			pairs[n].theirs = tips[i+1]
		}
	}
	complaints := 0
	trees, paths, kinds := compareMerges(t, git, pairs, func(format string, args ...any) {
		if complaints++; complaints <= 5 {
			t.Errorf(format, args...)
		}
	})
	t.Logf("%d merges, %d other trees, %d other paths, conflicts: %v", count, trees, paths, kinds)
	if dir := os.Getenv("PACKHORSE_MERGE_KEEP"); dir != "" && trees+paths > 0 {
		if out, err := exec.Command("cp", "-r", git.Dir, dir).CombinedOutput(); err != nil {
			t.Logf("%s", out)
		}
	}
	for kind := merge.BothChanged; kind <= merge.DirectorySplit; kind++ {
		if kinds[kind] == 0 && !testing.Short() {
			t.Errorf("no conflict of the kind %v", kind)
		}
	}
}

// TestMergesOfRepository replays the merges of a real repository, or the newest
// PACKHORSE_REAL_COUNT of them.
func TestMergesOfRepository(t *testing.T) {
	t.Parallel()
	git := oracle.Real(t)
	merges := git.Git("rev-list", "--branches", "--min-parents=2", "--max-parents=2", "--parents",
		fmt.Sprint("--max-count=", oracle.RealCount(t, 1<<30)))
	var pairs []pair
	for line := range strings.SplitSeq(merges, "\n") {
		if ids := strings.Fields(line); len(ids) == 3 {
			pairs = append(pairs, pair{ids[1], ids[2]})
		}
	}
	trees, paths, kinds := compareMerges(t, git, pairs, t.Errorf)
	t.Logf("%d merges, %d other trees (%.3f %%), %d other paths (%.3f %%), conflicts: %v", len(pairs),
		trees, 100*float64(trees)/float64(len(pairs)), paths, 100*float64(paths)/float64(len(pairs)), kinds)
}
