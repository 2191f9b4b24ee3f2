package fuzz

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"packhorse/engine/commit"
	"packhorse/engine/patch"
	"packhorse/fuzz/oracle"
)

// diffOptions are ways to make a patch that git apply takes back.
var diffOptions = [][]string{{"-U3"}, {"-M"}, {"-C", "--find-copies-harder"}, {"-U1"}, {"-B", "-M"}, {"-U25", "--full-index"}, {"--no-renames", "-W"}}

// TestPatchesOfHistories applies patches between neighbours of generated histories: the tree must be the one they lead to, or git must
// refuse them too.
func TestPatchesOfHistories(t *testing.T) {
	t.Parallel()
	histories := 6
	if testing.Short() {
		histories = 2
	}
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := generatedWorld(t, seed)
			git := oracle.Open(t, w.dir)
			x := w.newIndex(t)
			applied := 0
			for i, s := range oracle.Open(t, w.dir).Steps(1000) {
				text := git.Diff(s, diffOptions[i%len(diffOptions)]...)
				if got := w.ours(t, text, s.Before); got.tree == s.After {
					applied++
					continue
				}
				if difference, _, _ := x.compare(t, w.ours, text, s.Before); difference != "" {
					t.Errorf("%s\n%s", difference, text)
				}
			}
			if applied < 30 {
				t.Errorf("only %d patches applied", applied)
			}
		})
	}
}

func generatedWorld(tb testing.TB, seed uint64) *patchWorld {
	tb.Helper()
	git := oracle.New(tb)
	git.Evolve(rand.New(rand.NewPCG(seed, 4)), nil, 60)
	return newPatchWorld(tb, git.Dir)
}

// TestMutatedPatches changes patches at random and applies them, to the tree that they are for or to another one: git must come to the
// same verdict and, if it takes them, to the same tree.
func TestMutatedPatches(t *testing.T) {
	t.Parallel()
	worlds, count := 3, 700
	if testing.Short() {
		worlds, count = 1, 150
	}
	for seed := range uint64(worlds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := generatedWorld(t, 100+seed)
			mutations(t, w, w.ours, seed, count)
		})
	}
}

// mutations compares count mutated patches of a history, which apply holds against trees in our way.
func mutations(t *testing.T, w *patchWorld, apply apply, seed uint64, count int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 5))
	git := oracle.Open(t, w.dir)
	steps := oracle.Open(t, w.dir).Steps(100_000)
	x := w.newIndex(t)
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
		if random.IntN(4) == 0 { // hunks must be looked for
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
		t.Errorf("git accepts %d of %d: the mutations say little", accepted, count)
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

// FuzzPatch holds that any bytes are either refused for what they are or come to the same changes each time, which can be written.
func FuzzPatch(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 6))
	files := map[string]oracle.Leaf{
		"a":     {Mode: "100644", Content: "1\n2\n3\n4\n"},
		"dir/b": {Mode: "100755", Content: "x"},
		"link":  {Mode: "120000", Content: "a"},
		"sub":   {Mode: "160000", Content: strings.Repeat("1", 40)},
	}
	git := oracle.New(f)
	git.Evolve(random, files, 20)
	w := newPatchWorld(f, git.Dir)
	steps := git.Steps(100)
	base := steps[len(steps)-1].After
	for _, s := range steps {
		f.Add(git.Diff(oracle.Step{Before: base, After: s.After}))
	}
	f.Add([]byte("--- a\t2001-02-03 04:05:06 +0100\n+++ a\n@@ -1,2 +1 @@\n-1\n 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		first := w.ours(t, text, base)
		if again := w.ours(t, text, base); again.tree != first.tree || again.refusal != first.refusal {
			t.Errorf("first %+v, then %+v", first, again)
		}
		if err := first.err; err != nil && !errors.Is(err, patch.ErrMalformed) && !errors.Is(err, patch.ErrEmpty) &&
			!errors.Is(err, patch.ErrTooLarge) && !errors.Is(err, commit.ErrInvalid) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}

// TestPatchesOfRepository repeats both tests on the history of a real repository, through the package and through POST
// /repos/diff-commit; PACKHORSE_REAL_COUNT is how many patches of each kind are tried each way.
func TestPatchesOfRepository(t *testing.T) {
	t.Parallel()
	dir, count := oracle.Real(t).Dir, oracle.RealCount(t, 1000)
	for name, way := range map[string]func(w *patchWorld) apply{
		"package": func(w *patchWorld) apply { return w.ours },
		"server":  func(w *patchWorld) apply { return w.serve(t).apply },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPatchWorld(t, dir)
			apply := way(w)
			steps(t, w, apply, count)
			mutations(t, w, apply, 1, count)
		})
	}
}

// steps applies the patches of the last count commits of a history.
func steps(t *testing.T, w *patchWorld, apply apply, count int) {
	t.Helper()
	git := oracle.Open(t, w.dir)
	all := git.Steps(count)
	const workers = 2
	var group sync.WaitGroup
	var refused atomic.Int64
	for worker := range workers {
		x := w.newIndex(t)
		group.Go(func() {
			for i := worker; i < len(all); i += workers {
				s, options := all[i], diffOptions[i%len(diffOptions)]
				text := git.Diff(s, options...)
				if apply(t, text, s.Before).tree == s.After {
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
}

// TestPatchesThroughServer posts patches of a generated history, and mutated ones, to a server on the loopback.
func TestPatchesThroughServer(t *testing.T) {
	t.Parallel()
	count := 150
	if testing.Short() {
		count = 40
	}
	w := generatedWorld(t, 200)
	server := w.serve(t)
	steps(t, w, server.apply, count)
	mutations(t, w, server.apply, 2, count)
}
