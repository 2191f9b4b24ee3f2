package odb_test

import (
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/segment"
)

// TestPathHistoriesThroughAFork asks a fork for the history of a path, which lies beside a segment
// of its source.
func TestPathHistoriesThroughAFork(t *testing.T) {
	t.Parallel()
	g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 72, CommitCount: 40})
	h := odbtest.NewPool(t, odb.Options{Limits: odb.Limits{HotCount: 1}, HistoryCommits: 2})
	h.PushGit(g, odbtest.Lines("", g.Tips()))
	early := forkPool(h, g.Tips()...)
	early.BuildHistories() // leaves them to the source
	borrowing := early.View()
	for _, l := range borrowing.Segments() {
		if !borrowing.IsBorrowed(l) || l.Histories != nil {
			t.Errorf("segment %s of a fork: borrowed %v, path histories %v", l.ID, borrowing.IsBorrowed(l), l.Histories)
		}
	}
	h.BuildHistories()
	fork := forkPool(h, g.Tips()...)
	v := fork.View()
	known := 0
	for path, changes := range g.PathChanges() {
		histories, err := v.OpenHistories(t.Context(), segment.PathID(path))
		odbtest.Must(t, err)
		for _, want := range changes {
			got, ok, err := histories.Find(t.Context(), want.Commit, want.Parent)
			odbtest.Must(t, err)
			if !ok {
				continue
			}
			if known++; got == nil || got.Old != want.Old || got.New != want.New {
				t.Errorf("%q: %+v, want %+v", path, got, want)
			}
		}
		histories.Close()
	}
	if known == 0 {
		t.Error("the fork has no path histories")
	}
	fork.Fsck()
}
