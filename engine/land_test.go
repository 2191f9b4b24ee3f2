package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
	"packhorse/refs"
)

// branchOff commits a change to a new branch of main.
func branchOff(t *testing.T, repo *engine.Repository, name string, changes ...change) object.ID {
	t.Helper()
	made, err := upload(repo, acme, engine.CommitTarget{Branch: name, Base: "main"}, changes...)
	must(t, err)
	return made.New
}

// touches reports whether a commit has another file at a path than its first parent.
func touches(t *testing.T, view *odb.View, commit object.ID, path string) bool {
	t.Helper()
	reader, err := revwalk.NewPathReader(t.Context(), view, path)
	must(t, err)
	defer reader.Close()
	row, err := view.Graph(t.Context(), commit)
	must(t, err)
	before, err := view.Graph(t.Context(), row.Parents[0])
	must(t, err)
	_, is, err := reader.Entry(t.Context(), row.Tree)
	must(t, err)
	_, was, err := reader.Entry(t.Context(), before.Tree)
	must(t, err)
	return is != was
}

// landed tells what became of each source in a word, with what it clashes with.
func landed(outcome *engine.LandOutcome) string {
	var words []string
	for _, s := range outcome.Sources {
		word := string(s.Kind)
		for _, c := range s.Clashes {
			with := fmt.Sprint(c.Index)
			if c.Target {
				with = "target"
			}
			word += fmt.Sprintf(" %s:%s", with, strings.Join(c.Paths, ","))
		}
		words = append(words, word)
	}
	return strings.Join(words, "; ")
}

func TestLand(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		sources []engine.LandSource
		stop    bool
		want    string
		parents int // of the new tip; 0 if the target stays
	}{
		"disjoint": {sourcesNamed("a", "b", "c"), false, "merge_commit; merge_commit; merge_commit", 2},
		"squash": {
			[]engine.LandSource{{Source: engine.CommitName{Text: "a"}, Squash: true}}, false, "squash", 1,
		},
		"a clash":      {sourcesNamed("a", "b", "a2", "c"), false, "merge_commit; merge_commit; conflict 0:a; merge_commit", 2},
		"stops":        {sourcesNamed("a", "b", "a2", "c"), true, "merge_commit; merge_commit; conflict 0:a; skipped", 2},
		"two clashes":  {sourcesNamed("c", "b", "a", "ab"), false, "merge_commit; merge_commit; merge_commit; conflict 1:b 2:a", 2},
		"of a target":  {sourcesNamed("f", "a"), false, "conflict target:f; merge_commit", 2},
		"of both":      {sourcesNamed("b", "a", "af"), false, "merge_commit; merge_commit; conflict target:f 1:a", 2},
		"nothing":      {sourcesNamed("main~1", "main"), false, "no_op; no_op", 0},
		"twice":        {sourcesNamed("a", "a"), false, "merge_commit; no_op", 2},
		"on another":   {sourcesNamed("a", "on a"), false, "merge_commit; merge_commit", 2},
		"with another": {sourcesNamed("on a", "a"), false, "merge_commit; no_op", 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := enginetest.Create(t, enginetest.Open(t), "r")
			_, err := upload(repo, acme, main, change{path: "f", content: "1\n"}, change{path: "g", content: "1\n"})
			must(t, err)
			branchOff(t, repo, "f", change{path: "f", content: "2\n"})
			branchOff(t, repo, "af", change{path: "f", content: "2\n"}, change{path: "a", content: "2\n"})
			branchOff(t, repo, "a", change{path: "a", content: "1\n"})
			branchOff(t, repo, "a2", change{path: "a", content: "2\n"})
			branchOff(t, repo, "b", change{path: "b", content: "1\n"})
			branchOff(t, repo, "c", change{path: "c", content: "1\n"})
			branchOff(t, repo, "ab", change{path: "a", content: "3\n"}, change{path: "b", content: "3\n"})
			_, err = upload(repo, acme, engine.CommitTarget{Branch: "on-a", Base: "a"}, change{path: "a", content: "4\n"})
			must(t, err)
			before, err := upload(repo, acme, main, change{path: "f", content: "3\n"})
			must(t, err)
			outcome, err := repo.Land(t.Context(), acme, engine.LandRequest{
				Target: engine.MergeBranch{Name: "main"}, Sources: test.sources, StopOnConflict: test.stop, Author: thor,
			})
			must(t, err)
			if got := landed(&outcome); got != test.want {
				t.Errorf("it came to %q, want %q", got, test.want)
			}
			for _, s := range outcome.Sources {
				for _, c := range s.Clashes {
					partner := before.New
					if !c.Target {
						partner = outcome.Sources[c.Index].Commit
					}
					if c.Commit != partner {
						t.Errorf("%v clashes with commit %s, want %s", c.Paths, c.Commit, partner)
					}
				}
			}
			tip, err := repo.Branch(t.Context(), refs.Main, "main")
			must(t, err)
			if tip.Tip != outcome.Commit || (tip.Tip == before.New) != (test.parents == 0) || outcome.Old != before.New {
				t.Errorf("main is at %s, the outcome %+v", tip.Tip, outcome)
			}
			if test.parents > 0 {
				view, err := repo.Objects(t.Context())
				must(t, err)
				defer view.Close()
				row, err := view.Graph(t.Context(), tip.Tip)
				must(t, err)
				if len(row.Parents) != test.parents || row.Tree != outcome.Tree {
					t.Errorf("the tip has parents %v and tree %s", row.Parents, row.Tree)
				}
			}
		})
	}
}

// TestLandPartners clashes with commits that the target got in several ways, and with none that the
// source holds.
func TestLandPartners(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	commit := func(branch, path, content string) object.ID {
		t.Helper()
		made, err := upload(repo, acme, engine.CommitTarget{Branch: branch}, change{path: path, content: content})
		must(t, err)
		return made.New
	}
	begin := func(branch, base string) {
		t.Helper()
		_, err := repo.CreateBranch(t.Context(), acme,
			engine.CreateBranchRequest{Branch: branch, Base: engine.CommitName{Text: base}})
		must(t, err)
	}
	commit("main", "dir/f", "1\n")
	begin("late", "main")
	begin("early", "main")
	commit("late", "dir/f", "late\n")
	commit("early", "dir/g", "early\n")
	before := commit("main", "dir/f", "2\n")
	commit("main", "dir/f", "3\n")
	begin("after", "main") // holds two changes of the file
	after := commit("after", "dir/f", "after\n")
	for i := range 20 {
		commit("main", fmt.Sprint("dir/", i), "x")
	}
	g := commit("main", "dir/g", "g\n")
	commit("main", "unrelated", "x")
	last := commit("main", "dir/f", "4\n")
	commit("main", "unrelated", "y")
	for source, want := range map[string]object.ID{"late": last, "early": g, "after": last} {
		outcome, err := repo.Land(t.Context(), rehearsing, engine.LandRequest{
			Target: engine.MergeBranch{Name: "main"}, Sources: sourcesNamed(source), Author: thor,
		})
		must(t, err)
		if s := outcome.Sources[0]; len(s.Clashes) != 1 || !s.Clashes[0].Target || s.Clashes[0].Commit != want {
			t.Errorf("%s: %+v, want a clash with %s", source, s, want)
		}
	}
	begin("back", before.String())
	outcome, err := repo.Land(t.Context(), rehearsing, engine.LandRequest{
		Target: engine.MergeBranch{Name: "back"}, Sources: sourcesNamed("late", "after"), Author: thor,
	})
	must(t, err)
	if s := outcome.Sources; s[0].Clashes[0].Commit != before || s[1].Source != after || s[1].Kind != engine.LandMerged {
		t.Errorf("on an older target: %+v", s)
	}
}

// A source that is related to the target only since another one has landed conflicts with that one.
func TestLandJoinsHistories(t *testing.T) {
	t.Parallel()
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	_, err := upload(repo, acme, main, change{path: "f", content: "1\n"})
	must(t, err)
	git := oracle.New(t)
	git.Seed(oracle.History{Seed: 1, Commits: 1})
	root := git.Git("rev-parse", "main")
	pack := git.Input([]byte(root+"\n"), "pack-objects", "--revs", "--stdout", "-q")
	enginetest.Push(t, repo, pack, engine.Command{Name: "refs/heads/root", New: mustID(t, root)})
	branchOff(t, repo, "joined", change{path: "g", content: "1\n"})
	_, err = repo.Merge(t.Context(), acme, engine.MergeRequest{
		Source: branchNamed("root"), Target: engine.MergeBranch{Name: "joined"}, Unrelated: true,
		Strategy: engine.AlwaysMerge, Details: engine.CommitDetails{Message: "join", Author: thor},
	})
	must(t, err)
	for branch, target := range map[string]engine.CommitTarget{
		"joined": {Branch: "joined"}, "alone": {Branch: "alone", Base: "root"},
	} {
		_, err := upload(repo, acme, target, change{path: "new", content: branch})
		must(t, err)
	}
	outcome, err := repo.Land(t.Context(), acme, engine.LandRequest{
		Target: engine.MergeBranch{Name: "main"}, Sources: sourcesNamed("joined", "alone"), Author: thor,
	})
	must(t, err)
	if got, want := landed(&outcome), "merge_commit; conflict 0:new"; got != want {
		t.Errorf("landed %s, want %s", got, want)
	}
}

func sourcesNamed(names ...string) (sources []engine.LandSource) {
	for _, name := range names {
		sources = append(sources, engine.LandSource{Source: engine.CommitName{Text: strings.ReplaceAll(name, " ", "-")}})
	}
	return sources
}

// TestLandAgents lets agents land branches on one target at the same time, 50 of them 20 each with
// PACKHORSE_AGENT_COUNT=50. Branches that change files of their own land. Those that change the
// same file clash: one of them lands, and each other one names it, or the target if another agent
// landed it, and in either case the commit that landed it.
func TestLandAgents(t *testing.T) {
	t.Parallel()
	agents, each := 5, 6
	if n, err := strconv.Atoi(os.Getenv("PACKHORSE_AGENT_COUNT")); err == nil {
		agents, each = n, 20
	}
	repo := enginetest.Create(t, enginetest.Open(t), "r")
	_, err := upload(repo, acme, main, change{path: "f", content: "1\n"})
	must(t, err)
	random := rand.New(rand.NewPCG(1, 4))
	shared := make([][]int, agents) // the file that each branch shares with others, -1 for one of its own
	tips := make(map[string]object.ID)
	for a := range agents {
		for b := range each {
			file, path := -1, fmt.Sprintf("own/%d/%d", a, b)
			if random.IntN(4) == 0 {
				file = random.IntN(agents)
				path = fmt.Sprint("shared/", file)
			}
			shared[a] = append(shared[a], file)
			name := fmt.Sprintf("agent%d/%d", a, b)
			tips[name] = branchOff(t, repo, name, change{path: path, content: name + "\n"})
		}
	}
	outcomes := make([]engine.LandOutcome, agents)
	errs := make([]error, agents)
	var wait sync.WaitGroup
	for a := range agents {
		wait.Go(func() {
			var names []string
			for b := range each {
				names = append(names, fmt.Sprintf("agent%d/%d", a, b))
			}
			outcomes[a], errs[a] = repo.Land(context.Background(), acme, engine.LandRequest{
				Target: engine.MergeBranch{Name: "main"}, Sources: sourcesNamed(names...), Author: thor,
			})
		})
	}
	wait.Wait()
	main, err := repo.Branch(t.Context(), refs.Main, "main")
	must(t, err)
	view, err := repo.Objects(t.Context())
	must(t, err)
	defer view.Close()
	winners, clashes := make(map[int]int), 0
	for a := range agents {
		must(t, errs[a])
		for b := range each {
			s := &outcomes[a].Sources[b]
			file := shared[a][b]
			in, err := revwalk.IsAncestor(t.Context(), view, tips[fmt.Sprintf("agent%d/%d", a, b)], main.Tip)
			must(t, err)
			if in != (s.Kind == engine.LandMerged) {
				t.Errorf("branch %d of agent %d: %s, in main: %v", b, a, s.Kind, in)
			}
			switch {
			case s.Kind == engine.LandMerged && file >= 0:
				winners[file]++
			case s.Kind == engine.LandMerged:
			case s.Kind != engine.LandConflicted || file < 0 || len(s.Clashes) != 1:
				t.Errorf("branch %d of agent %d: %+v", b, a, s)
			default:
				clashes++
				c := s.Clashes[0]
				fits := c.Target
				if !c.Target {
					fits = c.Index < b && shared[a][c.Index] == file && outcomes[a].Sources[c.Index].Kind == engine.LandMerged
				}
				if !touches(t, view, c.Commit, fmt.Sprint("shared/", file)) {
					t.Errorf("branch %d of agent %d clashes with %s, which does not touch the file", b, a, c.Commit)
				}
				with, err := revwalk.IsAncestor(t.Context(), view, c.Commit, main.Tip)
				must(t, err)
				fits = fits && with
				if !fits || fmt.Sprint(c.Paths) != fmt.Sprintf("[shared/%d]", file) {
					t.Errorf("branch %d of agent %d clashes with %+v", b, a, c)
				}
			}
		}
	}
	for file, count := range winners {
		if count != 1 {
			t.Errorf("%d branches that change file %d landed", count, file)
		}
	}
	t.Logf("%d branches, %d of them clash", agents*each, clashes)
	if clashes == 0 {
		t.Error("no branch clashes")
	}
}
