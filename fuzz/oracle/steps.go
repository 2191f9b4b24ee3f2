package oracle

import (
	"slices"
	"strings"
)

// Step is the tree of a commit, and the one that it follows.
type Step struct{ Before, After string }

// EmptyTree is the empty tree, the base of a first commit.
const EmptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// Steps lists the commits of all branches that are no merges and change something, newest first,
// countMax of them at most.
func (r *Repository) Steps(countMax int) []Step {
	r.tb.Helper()
	trees := map[string]string{}
	var commits [][]string
	for line := range strings.Lines(r.Git("log", "--branches", "--format=%H %T %P")) {
		fields := strings.Fields(line)
		trees[fields[0]] = fields[1]
		commits = append(commits, fields)
	}
	var steps []Step
	for _, c := range commits {
		s := Step{Before: EmptyTree, After: c[1]}
		if len(c) == 3 {
			s.Before = trees[c[2]]
		}
		if len(c) <= 3 && s.Before != s.After && len(steps) < countMax {
			steps = append(steps, s)
		}
	}
	return steps
}

// Diff returns the patch of a step, as git diff-tree makes it with options.
func (r *Repository) Diff(s Step, options ...string) []byte {
	r.tb.Helper()
	return r.Input(nil,
		slices.Concat([]string{"diff-tree", "-p", "--binary", "-r"}, options, []string{s.Before, s.After})...)
}
