package merge_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/engine/merge"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// workTree is a work tree over the objects of a repository.
type workTree struct {
	t   *testing.T
	dir string
}

func newWorkTree(t *testing.T, git *oracle.Repository) *workTree {
	t.Helper()
	w := &workTree{t, t.TempDir()}
	if _, err := w.try("", "init", "--quiet"); err != nil {
		t.Fatal(err)
	}
	info := filepath.Join(w.dir, ".git", "objects", "info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		t.Fatal(err)
	}
	alternates := []byte(filepath.Join(git.Dir, "objects") + "\n")
	if err := os.WriteFile(filepath.Join(info, "alternates"), alternates, 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *workTree) try(stdin string, args ...string) (string, error) {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = w.dir, oracle.EnvOutside(w.dir), strings.NewReader(stdin)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s%s", strings.Join(args, " "), err, out, complaints.String())
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

func (w *workTree) git(stdin string, args ...string) string {
	w.t.Helper()
	out, err := w.try(stdin, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// stages are the entries of the index that conflict, by path.
func (w *workTree) stages() map[string][3]merge.Version {
	w.t.Helper()
	found := make(map[string][3]merge.Version)
	for entry := range strings.SplitSeq(w.git("", "ls-files", "--unmerged", "-z"), "\x00") {
		if entry == "" {
			continue
		}
		var mode object.Mode
		var id string
		var stage int
		fields, path, _ := strings.Cut(entry, "\t")
		if _, err := fmt.Sscanf(fields, "%o %s %d", &mode, &id, &stage); err != nil {
			w.t.Fatal(err)
		}
		v := found[path]
		parsed, err := object.ParseID(id)
		if err != nil {
			w.t.Fatal(err)
		}
		v[stage-1] = merge.Version{Mode: mode, ID: parsed}
		found[path] = v
	}
	return found
}

// resolved resolves the conflicts of a merge in the index of git, and returns the tree.
func (w *workTree) resolved(versions map[string]merge.Version) (string, error) {
	w.t.Helper()
	var in strings.Builder
	for path, v := range versions {
		fmt.Fprintf(&in, "0 %s\t%s\x00", object.ZeroID, path)
		if v.Mode != 0 {
			fmt.Fprintf(&in, "%s %s\t%s\x00", v.Mode, v.ID, path)
		}
	}
	w.git(in.String(), "update-index", "-z", "--index-info")
	return w.try("", "write-tree", "--missing-ok")
}

// oursOf merges two commits as git merge does in a work tree.
func oursOf(t *testing.T, view *odb.View, p pair) *merge.Result {
	t.Helper()
	var ids [2]object.ID
	for i, text := range []string{p.ours, p.theirs} {
		var err error
		if ids[i], err = object.ParseID(text); err != nil {
			t.Fatal(err)
		}
	}
	relations := revwalk.NewRelations(view)
	bases, err := relations.MergeBases(t.Context(), ids[0], ids[1])
	if err != nil {
		t.Fatal(err)
	}
	result, err := merge.NewMerger(view, relations).Commits(t.Context(), ids[0], ids[1], bases,
		merge.Options{Ours: "HEAD", Theirs: p.theirs, Unrelated: true})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// TestResolutionsAreThoseOfGit resolves the conflicts of generated merges at random, by a side, by
// other content and by removal, and in git's index in the same way: the trees are the same.
func TestResolutionsAreThoseOfGit(t *testing.T) {
	t.Parallel()
	count := oracle.CaseCount(t, 24, 8)
	git := oracle.New(t)
	random := rand.New(rand.NewPCG(11, 9))
	git.Input(mergeHistories(random, count), "fast-import", "--quiet", "--done", "--date-format=raw")
	view, w := odbtest.Clone(t, git), newWorkTree(t, git)
	content := []byte("resolved\n")
	blob, err := object.ParseID(git.Write("blob", content))
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[merge.Kind]int)
	trees := 0
	for n := range count {
		p := pair{
			git.Git("rev-parse", fmt.Sprint("refs/heads/ours/", n)), git.Git("rev-parse", fmt.Sprint("refs/heads/theirs/", n)),
		}
		w.git("", "read-tree", "--empty")
		w.git("", "clean", "-ffdxq")
		w.git("", "checkout", "--quiet", "--force", "--detach", p.ours)
		_, err := w.try("", "merge", "--quiet", "--no-commit", "--no-ff", "--allow-unrelated-histories", p.theirs)
		if err == nil || strings.Contains(err.Error(), "Assertion") {
			continue
		}
		result := oursOf(t, view, p)
		stages, versions := w.stages(), make(map[string]merge.Version)
		staged := 0
		for i := range result.Conflicts {
			c := &result.Conflicts[i]
			if !c.Staged() {
				continue
			}
			staged++
			kinds[c.Kind]++
			if stages[c.Path] != c.Stages {
				t.Errorf("merge %d: %s: stages %v, git has %v", n, c.Path, c.Stages, stages[c.Path])
			}
			switch way := random.IntN(5); way {
			case 0, 1, 2:
				versions[c.Path] = c.Stages[way]
			case 3:
				if _, err := result.AddBlob(content); err != nil {
					t.Fatal(err)
				}
				versions[c.Path] = merge.Version{Mode: object.ModeExec, ID: blob}
			default:
				versions[c.Path] = merge.Version{}
			}
		}
		if staged != len(stages) {
			t.Errorf("merge %d: %d paths conflict, in git %q", n, staged, slices.Sorted(maps.Keys(stages)))
		}
		before := result.Tree
		err = result.Resolve(t.Context(), versions)
		if errors.Is(err, merge.ErrInTheWay) {
			if result.Tree != before {
				t.Errorf("merge %d: refused, and the tree is another one", n)
			}
			continue // git's index gives the path to one of the two
		}
		if err != nil {
			t.Fatal(err)
		}
		want, err := w.resolved(versions)
		if err != nil {
			t.Fatal(err)
		}
		trees++
		if result.Tree.String() != want {
			t.Errorf("merge %d of %s and %s by %v: tree %s, git's is %s", n, p.ours, p.theirs, versions, result.Tree, want)
		}
		for i := range result.Conflicts {
			if c := &result.Conflicts[i]; c.Staged() {
				t.Errorf("merge %d: %s still conflicts", n, c.Path)
			}
		}
	}
	t.Logf("%d trees, conflicts: %v", trees, kinds)
	if trees < count/4 {
		t.Errorf("only %d of %d merges were resolved", trees, count)
	}
}
