package ingest_test

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
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// TestWhatIngestAcceptsGitTakes pushes packs that may be wrong. git must accept all accepted
// objects with --strict: as they are stored at first, after maintenance, and after a new search for
// all deltas.
func TestWhatIngestAcceptsGitTakes(t *testing.T) {
	t.Parallel()
	source := odbtest.NewPackSource(t, oracle.History{Seed: 12, Commits: 20, Files: 8, Tags: true},
		rand.New(rand.NewPCG(3, 9)))
	names := slices.Sorted(maps.Keys(odbtest.PackMutations))
	const batch = 50 // packs in one pool, so that git is asked once for all of them
	accepted, count := 0, oracle.CaseCount(t, 200, 100)
	for done := 0; done < count; done += batch {
		limits := odb.Limits{}
		if done/batch%2 == 1 {
			limits.HotValueBytes = 1 // segments
		}
		h := odbtest.NewPool(t, odb.Options{Limits: limits})
		if _, err := h.Push(source.OldPack, ingest.Options{}); err != nil {
			t.Fatal(err)
		}
		var cases []string
		for i := range batch {
			name := names[(done+i)%len(names)]
			if _, err := h.Push(odbtest.PackMutations[name](source), ingest.Options{}); err == nil {
				cases = append(cases, name)
			}
		}
		accepted += len(cases)
		what := fmt.Sprintf("packs %d to %d, ", done, done+batch)
		gitTakes(h, what+"as they came")
		h.CompactAll(false)
		gitTakes(h, what+"compacted")
		h.CompactAll(true)
		gitTakes(h, what+"with new deltas")
		if t.Failed() {
			t.Fatalf("accepted were %q", cases)
		}
	}
	if accepted < count/8 {
		t.Errorf("of %d packs only %d were accepted", count, accepted)
	}
	t.Logf("%d of %d packs accepted", accepted, count)
}

// gitTakes sends all objects of a pool to git and to another pool, and checks both pools.
func gitTakes(h *odbtest.Pool, what string) {
	h.Helper()
	v, err := h.Store.View(h.Context(), h.ID)
	h.Must(err)
	defer v.Close()
	sent := odbtest.PackOf(h.TB, v, storedIDs(h, v))
	git := oracle.New(h.TB)
	if told, err := git.Try(sent, "index-pack", strict, "--stdin"); err != nil || missingGitmodules.Match(told) {
		h.Errorf("%s: git: %s, %v", what, told, err)
	}
	other := h.Another(h.TB)
	if _, err := other.Push(sent, ingest.Options{}); err != nil {
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

// storedIDs returns the IDs of all objects in the segments of a view, and in the hot layers of all
// pools of the stores: the other pools have objects of this one only.
func storedIDs(h *odbtest.Pool, v *odb.View) []object.ID {
	h.Helper()
	var ids []object.ID
	last := object.ID(bytes.Repeat([]byte{0xff}, object.IDSize))
	for _, l := range v.Segments() {
		g, err := l.Acquire(h.Context())
		h.Must(err)
		h.Must(g.Scan(h.Context(), object.ZeroID, last, func(id object.ID) bool {
			ids = append(ids, id)
			return true
		}))
		l.Release(g)
	}
	const prefix = 1 + len(segment.LayerID{}) // see docs/formats.md
	for pair, err := range h.Keys.Scan(h.Context(), kv.ScanOptions{Start: []byte{'o'}, End: []byte{'o' + 1}}) {
		h.Must(err)
		ids = append(ids, object.ID(pair.Key[prefix:]))
	}
	return segment.SortIDs(ids)
}
