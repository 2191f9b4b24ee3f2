package patch_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/engine/commit"
	"packhorse/engine/diff"
	"packhorse/engine/patch"
	"packhorse/engine/patch/patchtest"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// applyIn applies patches to trees of a view with package patch and the API's way to write trees.
func applyIn(view *odb.View) patchtest.Apply {
	return func(tb testing.TB, text []byte, base string) patchtest.Verdict {
		tb.Helper()
		ctx := tb.Context()
		root := parseID(tb, base)
		q := view.NewQuarantine(ctx)
		defer q.Close()
		p, err := patch.Parse(ctx, bytes.NewReader(text), int64(len(text)), patch.Limits{})
		if err != nil {
			return patchtest.Verdict{Refusal: err.Error(), Err: err}
		}
		outcome, err := p.Apply(ctx, q, root)
		if err != nil {
			tb.Fatalf("apply: %v\n%s", err, text)
		}
		if outcome.Rejected != nil {
			return patchtest.Verdict{Refusal: outcome.Rejected.String()}
		}
		operations := make([]commit.Operation, len(outcome.Changes))
		for i, c := range outcome.Changes {
			operations[i] = commit.Operation{Path: c.Path, Delete: c.Remove, Mode: c.Mode, Content: c.ID}
		}
		plan, err := commit.NewPlan(operations)
		if err != nil {
			return patchtest.Verdict{Refusal: err.Error(), Err: err}
		}
		tree, err := plan.Apply(ctx, q, root)
		if err != nil {
			tb.Fatalf("write trees: %v\n%s", err, text)
		}
		return patchtest.Verdict{Tree: tree.String()}
	}
}

func parseID(tb testing.TB, hex string) object.ID {
	tb.Helper()
	id, err := object.ParseID(hex)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

// TestPatchesOfHistories applies patches between neighbours of generated histories.
func TestPatchesOfHistories(t *testing.T) {
	t.Parallel()
	histories := 6
	if testing.Short() {
		histories = 2
	}
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			git.Evolve(rand.New(rand.NewPCG(seed, 4)), nil, 60)
			if applied := patchtest.Histories(t, git, applyIn(odbtest.Clone(t, git)), 1000); applied < 30 {
				t.Errorf("only %d patches applied", applied)
			}
		})
	}
}

// TestMutatedPatches changes patches of generated histories at random.
func TestMutatedPatches(t *testing.T) {
	t.Parallel()
	histories, count := 3, 700
	if testing.Short() {
		histories, count = 1, 150
	}
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			git := oracle.New(t)
			git.Evolve(rand.New(rand.NewPCG(100+seed, 4)), nil, 60)
			patchtest.Mutations(t, git, applyIn(odbtest.Clone(t, git)), seed, count)
		})
	}
}

// TestPatchesOfRepository repeats both tests on the history of a real repository;
// PACKHORSE_REAL_COUNT is how many patches of each kind are tried.
func TestPatchesOfRepository(t *testing.T) {
	t.Parallel()
	git, count := oracle.Real(t), oracle.RealCount(t, 1000)
	apply := applyIn(odbtest.Clone(t, git))
	patchtest.Histories(t, git, apply, count)
	patchtest.Mutations(t, git, apply, 1, count)
}

// TestOwnPatchesOfHistories applies the patches that package diff makes, binary ones too: they make
// the tree that they lead to, or git apply refuses them too.
func TestOwnPatchesOfHistories(t *testing.T) {
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
			if applied := applyOwn(t, git, steps); applied < len(steps)/2 {
				t.Errorf("only %d patches applied", applied)
			}
		})
	}
}

// TestOwnPatchesOfRepository applies the patches that package diff makes of the newest commits of a
// real repository, as many as PACKHORSE_REAL_COUNT says, or all.
func TestOwnPatchesOfRepository(t *testing.T) {
	t.Parallel()
	git := oracle.Real(t)
	applyOwn(t, git, git.Steps(oracle.RealCount(t, 1<<30)))
}

// applyOwn applies our patches of steps, and returns how many make their tree.
func applyOwn(t *testing.T, git *oracle.Repository, steps []oracle.Step) (applied int) {
	t.Helper()
	const complaintsMax = 10
	view, index := odbtest.Clone(t, git), patchtest.NewIndex(t, git)
	apply := applyIn(view)
	bad := 0
	for _, s := range steps {
		text := ownPatch(t, view, s)
		v := apply(t, text, s.Before)
		if v.Tree == s.After {
			applied++
			continue
		}
		theirs, _ := index.Apply(t, text, s.Before)
		if theirs.Tree == "" {
			continue // git apply cannot say it either
		}
		if !index.IsCanonical(t, s.Before) || !index.IsCanonical(t, s.After) {
			continue // git writes modes anew that we leave as they are (docs/limits.md)
		}
		if bad++; bad <= complaintsMax {
			t.Errorf("%s %s: our patch makes %s%s\n%.3000s", s.Before, s.After, v.Tree, v.Refusal, text)
		}
	}
	t.Logf("%d of %d patches applied, %d differ", applied, len(steps), bad)
	return applied
}

// ownPatch is the diff of a step by package diff, with the contents of binary files.
func ownPatch(t *testing.T, view *odb.View, s oracle.Step) []byte {
	t.Helper()
	var all bytes.Buffer
	for c, err := range diff.Changes(t.Context(), view, parseID(t, s.Before), parseID(t, s.After), nil) {
		if err != nil {
			t.Fatal(err)
		}
		text, err := diff.NewText(t.Context(), view, &c, diff.TextOptions{Binary: true})
		if err == nil {
			err = text.Write(t.Context(), &all)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.Bytes()
}
