package merge_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"packhorse/engine/merge"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// threeTrees are the trees of a pick: what a commit was made on, where it goes, and its own, or the
// other way round for one that is taken back.
type threeTrees struct{ base, ours, theirs string }

// aCommit is a commit of a history.
type aCommit struct {
	tree    string
	parents []string
}

// historyOf reads commits, in the order of a walk.
func historyOf(git *oracle.Repository, which ...string) (ids []string, commits map[string]aCommit) {
	commits = make(map[string]aCommit)
	args := append([]string{"log", "--format=%H %T %P", "--topo-order"}, which...)
	for line := range strings.Lines(git.Git(args...)) {
		fields := strings.Fields(line)
		ids = append(ids, fields[0])
		commits[fields[0]] = aCommit{fields[1], fields[2:]}
	}
	return ids, commits
}

// drawPicks draws picks: each commit goes onto another one near it in the walk, and is taken back
// on a later one. Merges are compared with one of their parents.
func drawPicks(
	random *rand.Rand, ids []string, commits map[string]aCommit, count int,
) (picks []threeTrees, merges int) {
	const near = 60
	for range count {
		at := random.IntN(len(ids))
		c := commits[ids[at]]
		before := object.EmptyTreeID.String()
		if len(c.parents) > 0 {
			before = commits[c.parents[random.IntN(len(c.parents))]].tree
		}
		if before == "" { // cut off
			continue
		}
		if len(c.parents) > 1 {
			merges++
		}
		onto := commits[ids[min(len(ids)-1, max(0, at-near+random.IntN(2*near)))]].tree
		later := commits[ids[max(0, at-random.IntN(near))]].tree
		picks = append(picks, threeTrees{before, onto, c.tree}, threeTrees{c.tree, later, before})
	}
	return picks, merges
}

// comparePicks makes picks both ways. git merge-tree 2.39 takes no base, so it gets commits of
// which the one is the base of the two others.
func comparePicks(
	t *testing.T, git *oracle.Repository, view *odb.View, picks []threeTrees, complain func(format string, args ...any),
) (trees, paths, conflicted int) {
	t.Helper()
	scratch := oracle.New(t)
	info := filepath.Join(scratch.Dir, "objects", "info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		t.Fatal(err)
	}
	alternate := filepath.Join(git.Dir, "objects") + "\n"
	if err := os.WriteFile(filepath.Join(info, "alternates"), []byte(alternate), 0o644); err != nil {
		t.Fatal(err)
	}
	var in bytes.Buffer
	for i, p := range picks {
		for n, tree := range []string{p.base, p.ours, p.theirs} {
			// A branch that is begun anew has no parent.
			fmt.Fprintf(&in, "reset refs/heads/work\n\ncommit refs/heads/work\nmark :%d\ncommitter C <c@d> %d +0000\ndata 0\n",
				3*i+n+1, 3*i+n)
			if n > 0 {
				fmt.Fprintf(&in, "from :%d\n", 3*i+1)
			}
			if tree == object.EmptyTreeID.String() {
				in.WriteString("deleteall\n\n")
			} else {
				fmt.Fprintf(&in, "M 040000 %s \n\n", tree)
			}
		}
	}
	in.WriteString("done\n")
	marks := filepath.Join(t.TempDir(), "marks")
	scratch.Input(in.Bytes(), "fast-import", "--quiet", "--done", "--date-format=raw", "--export-marks="+marks)
	exported, err := os.ReadFile(marks)
	if err != nil {
		t.Fatal(err)
	}
	made := make([]string, 3*len(picks))
	for line := range strings.Lines(string(exported)) {
		var mark int
		var id string
		if _, err := fmt.Sscanf(line, ":%d %s", &mark, &id); err != nil {
			t.Fatal(err)
		}
		made[mark-1] = id
	}
	pairs := make([]pair, len(picks))
	for i := range pairs {
		pairs[i] = pair{made[3*i+1], made[3*i+2]}
	}
	objects := t.TempDir()
	for i, theirs := range theirPicks(t, scratch.Dir, objects, pairs) {
		ours := ourPick(t, view, picks[i], pairs[i])
		if theirs.tree == "" { // git died
			continue
		}
		if !theirs.clean {
			conflicted++
		}
		sameTree := ours.tree == theirs.tree && ours.clean == theirs.clean
		samePaths := slices.Equal(ours.conflicts, theirs.conflicts)
		if !sameTree && !theirs.clean && samePaths && isBroken(t, scratch.Dir, objects, theirs.tree) {
			continue
		}
		if !sameTree {
			trees++
		}
		if !samePaths {
			paths++
		}
		if !sameTree || !samePaths {
			complain("base %s, ours %s, theirs %s\nours: %v %s %q\ngit:  %v %s %q", picks[i].base, picks[i].ours,
				picks[i].theirs, ours.clean, ours.tree, ours.conflicts, theirs.clean, theirs.tree, theirs.conflicts)
		}
	}
	return trees, paths, conflicted
}

// theirPicks is theirMerges in a repository that borrows its objects.
func theirPicks(t *testing.T, dir, objects string, pairs []pair) (verdicts []verdict) {
	t.Helper()
	const atOnce = 500
	for chunk := range slices.Chunk(pairs, atOnce) {
		verdicts = append(verdicts, theirMerges(t, dir, objects, chunk)...)
	}
	return verdicts
}

// ourPick merges three trees with package merge.
func ourPick(t *testing.T, view *odb.View, p threeTrees, labels pair) verdict {
	t.Helper()
	var ids [3]object.ID
	for i, text := range []string{p.base, p.ours, p.theirs} {
		var err error
		if ids[i], err = object.ParseID(text); err != nil {
			t.Fatal(err)
		}
	}
	result, err := merge.NewMerger(view, nil).Trees(t.Context(), ids[0], ids[1], ids[2],
		merge.Options{Ours: labels.ours, Theirs: labels.theirs})
	if err != nil {
		t.Errorf("merge %s and %s over %s: %v", p.ours, p.theirs, p.base, err)
		return verdict{}
	}
	v := verdict{clean: result.Clean(), tree: result.Tree.String()}
	for i := range result.Conflicts {
		if c := &result.Conflicts[i]; c.Staged() {
			v.conflicts = append(v.conflicts, c.Path)
		}
	}
	return v
}

// TestPicksAreThoseOfGit picks commits of generated histories, among them merges and roots, and
// takes them back.
func TestPicksAreThoseOfGit(t *testing.T) {
	t.Parallel()
	count := oracle.CaseCount(t, 100, 30)
	git := oracle.New(t)
	random := rand.New(rand.NewPCG(5, 9))
	git.Input(mergeHistories(random, count/4+1), "fast-import", "--quiet", "--done", "--date-format=raw")
	ids, commits := historyOf(git, "--all")
	picks, merges := drawPicks(random, ids, commits, count)
	complaints := 0
	trees, paths, conflicted := comparePicks(t, git, odbtest.Clone(t, git), picks, func(format string, args ...any) {
		if complaints++; complaints <= 5 {
			t.Errorf(format, args...)
		}
	})
	t.Logf("%d picks, %d of merges, %d conflict, %d other trees, %d other paths", len(picks), 2*merges, conflicted, trees,
		paths)
	if merges == 0 || conflicted == 0 || conflicted == len(picks) {
		t.Errorf("%d of %d picks are of merges, %d conflict", merges, len(picks), conflicted)
	}
}

// TestPicksOfRepository picks PACKHORSE_PICK_COUNT commits of a real repository, and takes them
// back.
func TestPicksOfRepository(t *testing.T) {
	t.Parallel()
	count, err := strconv.Atoi(os.Getenv("PACKHORSE_PICK_COUNT"))
	if err != nil {
		t.Skip("PACKHORSE_PICK_COUNT says how many commits of PACKHORSE_REAL_REPO are picked")
	}
	git := oracle.Real(t)
	ids, commits := historyOf(git, "--branches", fmt.Sprint("--max-count=", oracle.RealCount(t, 1<<30)))
	picks, merges := drawPicks(rand.New(rand.NewPCG(1, 9)), ids, commits, count)
	trees, paths, conflicted := comparePicks(t, git, odbtest.Clone(t, git), picks, t.Errorf)
	t.Logf("%d picks of %d commits, %d of merges, %d conflict, %d other trees, %d other paths", len(picks), len(ids),
		2*merges, conflicted, trees, paths)
}
