package odb_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
)

// TestWhatIngestAcceptsGitTakes pushes packs that may be wrong, and has git take, strictly,
// everything that came in: as it is stored at first, after maintenance, and when every delta has
// been searched anew.
func TestWhatIngestAcceptsGitTakes(t *testing.T) {
	t.Parallel()
	seeds := oracle.New(t)
	seeds.Seed(oracle.History{Seed: 12, Commits: 20, Files: 8, Tags: true})
	old, tip := seeds.Git("rev-parse", "main~8"), seeds.Git("rev-parse", "main")
	older := seeds.Input([]byte(old+"\n"), "pack-objects", "--revs", "--stdout", "-q")
	source := packSource{
		tb: t, random: rand.New(rand.NewPCG(3, 9)), objects: readObjects(t, seeds, tip, "^"+old),
		older: readObjects(t, seeds, old),
	}
	names := slices.Sorted(maps.Keys(mutations))
	const batch = 50 // packs in one pool, so that git is asked once for all of them
	accepted, count := 0, oracle.CaseCount(t, 200, 100)
	for done := 0; done < count; done += batch {
		limits := odb.Limits{}
		if done/batch%2 == 1 {
			limits.HotValueBytes = 1 // segments
		}
		h := odbtest.NewPool(t, odb.Options{Limits: limits})
		if _, err := h.Push(older, ingest.Options{}); err != nil {
			t.Fatal(err)
		}
		var cases []string
		for i := range batch {
			name := names[(done+i)%len(names)]
			if _, err := h.Push(mutations[name](&source), ingest.Options{}); err == nil {
				cases = append(cases, name)
			}
		}
		accepted += len(cases)
		for _, options := range []*repack.CompactOptions{
			nil, {All: true}, {All: true, RepackOptions: packgen.RepackOptions{Anew: true}},
		} {
			what := fmt.Sprintf("packs %d to %d, %+v", done, done+batch, options)
			if options != nil {
				if _, err := repack.Compact(t.Context(), h.Store, h.ID, *options); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			gitTakes(h, what)
		}
		if t.Failed() {
			t.Fatalf("accepted were %q", cases)
		}
	}
	if accepted < count/8 {
		t.Errorf("of %d packs only %d were accepted", count, accepted)
	}
	t.Logf("%d of %d packs accepted", accepted, count)
}

// gitTakes sends everything in the pool to git and to another pool, and checks the pool.
func gitTakes(h *odbtest.Pool, what string) {
	h.Helper()
	v, err := h.Store.View(h.Context(), h.ID)
	h.Must(err)
	defer v.Close()
	ids, err := odb.ObjectIDs(h.Context(), v)
	h.Must(err)
	plan, err := packgen.Plan(h.Context(), v, packgen.Request{Wants: ids, OFSDelta: true}, nil)
	h.Must(err)
	defer plan.Close()
	var sent bytes.Buffer
	_, err = plan.WriteTo(h.Context(), &sent, nil)
	h.Must(err)
	git := oracle.New(h.TB)
	if told, err := git.Try(sent.Bytes(), "index-pack", strict, "--stdin"); err != nil || missingGitmodules.Match(told) {
		h.Errorf("%s: git: %s, %v", what, told, err)
	}
	other := h.Another(h.TB)
	if _, err := other.Push(sent.Bytes(), ingest.Options{}); err != nil {
		h.Errorf("%s: pushed to another pool: %v", what, err)
	}
	for _, pool := range []odb.PoolID{h.ID, other.ID} {
		report, err := h.Store.Fsck(h.Context(), pool, odb.FsckOptions{})
		h.Must(err)
		if report.ProblemCount+report.WarningCount > 0 {
			h.Errorf("%s: fsck: %v, %v", what, report.Problems, report.Warnings)
		}
	}
}
