package patchtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"packhorse/fuzz/oracle"
)

// diffOptions are ways to make a patch that git apply accepts.
var diffOptions = [][]string{
	{"-U3"},
	{"-M"},
	{"-C", "--find-copies-harder"},
	{"-U1"},
	{"-B", "-M"},
	{"-U25", "--full-index"},
	{"--no-renames", "-W"},
}

// Histories applies the patches of the last count commits of a history: the result must be the tree
// of the commit, or git must refuse the patch, too. It returns the number of accepted patches.
func Histories(t *testing.T, git *oracle.Repository, apply Apply, count int) (applied int) {
	t.Helper()
	all := git.Steps(count)
	const workers = 2
	var group sync.WaitGroup
	var refused atomic.Int64
	for worker := range workers {
		x := NewIndex(t, git)
		group.Go(func() {
			for i := worker; i < len(all); i += workers {
				s, options := all[i], diffOptions[i%len(diffOptions)]
				text := git.Diff(s, options...)
				if apply(t, text, s.Before).Tree == s.After {
					continue
				}
				refused.Add(1)
				if difference, _, _ := x.compare(t, apply, text, s.Before); difference != "" {
					t.Errorf("%s to %s with %v: %s", s.Before, s.After, options, difference)
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d patches of the history, of which git refuses %d", len(all), refused.Load())
	return len(all) - int(refused.Load())
}

// Mutations changes count patches of a history at random and applies them, to their own tree or to
// another one: git must come to the same verdict and, if it accepts them, to the same tree.
func Mutations(t *testing.T, git *oracle.Repository, apply Apply, seed uint64, count int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 5))
	steps := git.Steps(100_000)
	x := NewIndex(t, git)
	accepted, expected := 0, map[string]int{}
	for done := 0; done < count; {
		at := random.IntN(len(steps))
		s := steps[at]
		text := git.Diff(s, diffOptions[random.IntN(len(diffOptions))]...)
		other := git.Diff(steps[max(at-1, 0)])
		if len(text)+len(other) > 1<<20 {
			continue
		}
		base := s.Before
		if random.IntN(4) == 0 { // hunks must be searched
			base = steps[min(max(at+random.IntN(40)-20, 0), len(steps)-1)].Before
		}
		for range 10 {
			changed := text
			if base == s.Before || random.IntN(2) == 0 {
				changed = mutate(random, text, other)
			}
			difference, reason, ok := x.compare(t, apply, changed, base)
			if difference != "" {
				keep(t, changed)
				t.Errorf("%s\n%.4000q", difference, changed)
			}
			if reason != "" {
				expected[reason]++
			}
			if ok {
				accepted++
			}
			done++
			if t.Failed() && done > count/10 {
				return
			}
		}
	}
	t.Logf("%d patches, git accepts %d; deliberate differences: %v", count, accepted, expected)
	if accepted < count/20 || accepted > count*19/20 {
		t.Errorf("git accepts only %d of %d mutations", accepted, count)
	}
}

// keep writes a patch that makes a difference to the folder in PACKHORSE_PATCH_KEEP.
func keep(t *testing.T, text []byte) {
	t.Helper()
	if dir := os.Getenv("PACKHORSE_PATCH_KEEP"); dir != "" {
		name := filepath.Join(dir, fmt.Sprintf("%x.patch", len(text)*7919+int(text[len(text)/2])))
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Error(err)
		}
	}
}
