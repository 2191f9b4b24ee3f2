package ingest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/odbtest"
	"packhorse/pack"
	"packhorse/pack/object"
	"packhorse/pack/packtest"
)

// strict is the option of git index-pack that the verdicts are compared with. The cases below leave
// out or allow these intended differences:
//
//   - faults that real histories are full of are tolerated: see [object.Check];
//   - repeated objects are tolerated, as they are without --strict;
//   - bytes behind the pack are refused, as git does for a file and cannot for a pipe;
//   - limits: names of 255 bytes, paths, tree and delta depth, sizes.
const strict = "--strict=badTimezone=ignore,missingSpaceBeforeDate=ignore,zeroPaddedFilemode=ignore"

// repeated matches git's verdicts on repeated objects.
var repeated = regexp.MustCompile("appears twice in the pack|duplicate base")

// missingGitmodules matches the ID of a .gitmodules that is not there.
var missingGitmodules = regexp.MustCompile(`(?m)^[0-9a-f]{40}$`)

// judge has git read a pack, and returns its verdict and the IDs of the objects. The repository
// does not change.
func judge(tb testing.TB, git *oracle.Repository, packed []byte) (objects []string, verdict error) {
	tb.Helper()
	dir := filepath.Join(git.Dir, "objects", "pack")
	before, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		tb.Fatal(err)
	}
	told, verdict := git.Try(packed, "index-pack", strict, "--stdin", "--fix-thin")
	if verdict == nil && missingGitmodules.Match(told) {
		verdict = errors.New("gitmodulesMissing") // index-pack leaves these to its caller, and receive-pack refuses them
	}
	after, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		tb.Fatal(err)
	}
	fresh := slices.DeleteFunc(after, func(name string) bool { return slices.Contains(before, name) })
	for _, name := range fresh {
		if strings.HasSuffix(name, ".pack") && verdict == nil {
			for line := range strings.Lines(git.Git("verify-pack", "-v", name)) {
				if id, _, ok := strings.Cut(line, " "); ok && len(id) == object.HexSize {
					objects = append(objects, id)
				}
			}
		}
	}
	for _, name := range fresh {
		if err := os.Remove(name); err != nil {
			tb.Fatal(err)
		}
	}
	return objects, verdict
}

func TestIngestJudgesAsGit(t *testing.T) {
	t.Parallel()
	source := odbtest.NewPackSource(t, oracle.History{Seed: 11, Commits: 24, Files: 12, Tags: true}, nil)
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for name, mutate := range odbtest.PackMutations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The judge has the older half, as the pool has.
			git := oracle.New(t)
			git.Input(source.OldPack, "index-pack", "--stdin")
			s := *source
			s.TB, s.Random = t, rand.New(rand.NewPCG(uint64(len(name)), 5))
			for round := range rounds {
				packed := mutate(&s)
				objects, verdict := judge(t, git, packed)
				if verdict != nil && repeated.MatchString(verdict.Error()) {
					continue
				}
				for tier, limits := range map[string]odb.Limits{"hot": {}, "segment": {HotValueBytes: 1}} {
					compareVerdict(t, fmt.Sprintf("round %d, %s", round, tier), source.OldPack, packed, limits, objects, verdict)
				}
			}
		})
	}
}

func compareVerdict(
	t *testing.T, what string, older, packed []byte, limits odb.Limits, objects []string, verdict error,
) {
	t.Helper()
	h := odbtest.NewPool(t, odb.Options{Limits: limits})
	if _, err := h.Push(older, ingest.Options{}); err != nil {
		t.Fatal(err)
	}
	files := len(leftovers(h))
	_, err := h.Push(packed, ingest.Options{})
	if (err == nil) != (verdict == nil) {
		t.Fatalf("%s: packhorse says %v, git says %v", what, err, verdict)
	}
	if err != nil {
		if !ingest.IsBadPack(err) && !errors.Is(err, pack.ErrLimit) {
			t.Errorf("%s: a bad pack is reported as %v", what, err)
		}
		if left := len(leftovers(h)); left != files {
			t.Errorf("%s: %d files were left behind", what, left-files)
		}
		return
	}
	h.Fsck()
	v := h.View()
	for _, hex := range objects {
		id, err := object.ParseID(hex)
		if err != nil {
			t.Fatal(err)
		}
		kind, data, err := v.Read(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if packtest.Hash(t, kind, data) != id {
			t.Errorf("%s: %s reads back as something else", what, id)
		}
	}
}
