package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/merge"
	"packhorse/pack/object"
)

// TestResolutions resolves the conflicts of a merge and of a pick.
func TestResolutions(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	blob, err := object.Hash(object.TypeBlob, []byte("theirs\n"))
	must(t, err)
	commit, err := object.ParseID("0123456789012345678901234567890123456789")
	must(t, err)
	all := []engine.Resolution{{Path: "f", Side: engine.OursSide}, {Path: "gone", Side: engine.TheirsSide}}
	tests := map[string]struct {
		resolutions []engine.Resolution
		left        string // the paths that conflict still
		files       string // and otherwise f and gone
		err         error
	}{
		"none":      {nil, "[f gone]", "", nil},
		"one":       {all[:1], "[gone]", "", nil},
		"all":       {all, "", "ours\n -", nil},
		"base":      {[]engine.Resolution{{Path: "f", Side: engine.BaseSide}, {Path: "gone", Delete: true}}, "", "base\n -", nil},
		"content":   {[]engine.Resolution{{Path: "f", Content: text("new\n")}, {Path: "gone", Blob: blob}}, "", "new\n theirs\n", nil},
		"ours left": {[]engine.Resolution{{Path: "f", Content: text("")}, {Path: "gone", Side: engine.OursSide}}, "", " ours\n", nil},
		"no conflict": {
			append([]engine.Resolution{{Path: "other", Delete: true}}, all...), "", "", engine.ErrNoConflict,
		},
		"no such blob": {[]engine.Resolution{{Path: "f", Blob: commit}}, "", "", engine.ErrNotFound},
		"two ways":     {[]engine.Resolution{{Path: "f", Delete: true, Side: engine.OursSide}}, "", "", engine.ErrInvalid},
		"no way":       {[]engine.Resolution{{Path: "f"}}, "", "", engine.ErrInvalid},
		"no path":      {[]engine.Resolution{{Delete: true}}, "", "", engine.ErrInvalid},
		"twice":        {append(all, all[0]), "", "", engine.ErrInvalid},
		"mode": {
			[]engine.Resolution{{Path: "f", Content: text(""), Mode: object.ModeGitlink}}, "", "", engine.ErrInvalid,
		},
		"no side": {[]engine.Resolution{{Path: "f", Side: "mine"}}, "", "", engine.ErrInvalid},
	}
	for name, test := range tests {
		for _, picks := range []bool{false, true} {
			t.Run(fmt.Sprint(name, picks), func(t *testing.T) {
				t.Parallel()
				repo := enginetest.Create(t, enginetest.Open(t), "r")
				_, err := upload(repo, acme, main, change{path: "f", content: "base\n"}, change{path: "gone", content: "base\n"})
				must(t, err)
				_, err = upload(repo, acme, engine.CommitTarget{Branch: "dev", Base: "main"}, change{path: "f", content: "theirs\n"},
					change{path: "gone", remove: true}, change{path: "other", content: "1\n"})
				must(t, err)
				before, err := upload(repo, acme, main, change{path: "f", content: "ours\n"}, change{path: "gone", content: "ours\n"})
				must(t, err)
				var conflicts []merge.Conflict
				var tip object.ID
				if picks {
					var outcome engine.PickOutcome
					outcome, err = repo.Pick(context.Background(), acme, engine.PickRequest{
						Commits: []engine.CommitName{{Text: "dev"}}, Target: engine.MergeBranch{Name: "main"}, Committer: thor,
						Resolutions: test.resolutions,
					})
					conflicts, tip = outcome.Conflicts, outcome.Commit
				} else {
					var outcome engine.MergeOutcome
					outcome, err = repo.Merge(context.Background(), acme, engine.MergeRequest{
						Source: branchNamed("dev"), Target: engine.MergeBranch{Name: "main"}, Strategy: engine.AlwaysMerge,
						Details: engine.CommitDetails{Message: "resolved", Author: thor}, Resolutions: test.resolutions,
					})
					conflicts, tip = outcome.Conflicts, outcome.Commit
				}
				if !errors.Is(err, test.err) {
					t.Fatalf("error is %v, want %v", err, test.err)
				}
				left := ""
				if len(conflicts) > 0 {
					left = fmt.Sprint(engine.ConflictPaths(conflicts))
				}
				if left != test.left {
					t.Errorf("%s conflict still, want %s", left, test.left)
				}
				branch, err := repo.Branch(t.Context(), 0, "main")
				must(t, err)
				if test.files == "" {
					if branch.Tip != before.New {
						t.Errorf("the branch moved to %s", branch.Tip)
					}
					return
				}
				if branch.Tip != tip {
					t.Errorf("the branch is at %s, want %s", branch.Tip, tip)
				}
				if got := contentOf(t, repo, tip, "f") + " " + contentOf(t, repo, tip, "gone"); got != test.files {
					t.Errorf("files are %q, want %q", got, test.files)
				}
			})
		}
	}
}

// contentOf is the content of a file at the root of a commit, "-" without one.
func contentOf(t *testing.T, repo *engine.Repository, id object.ID, name string) string {
	t.Helper()
	view, err := repo.Objects(t.Context())
	must(t, err)
	defer view.Close()
	row, err := view.Graph(t.Context(), id)
	must(t, err)
	data, err := view.ReadTree(t.Context(), row.Tree)
	must(t, err)
	for it := object.IterTree(data); it.Next(); {
		if string(it.Name) == name {
			_, content, err := view.Read(t.Context(), it.ID)
			must(t, err)
			return string(content)
		}
	}
	return "-"
}
