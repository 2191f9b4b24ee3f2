package repack_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"packhorse/odb"
	"packhorse/odb/odbtest"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// lineCounter makes an [odb.LineDiff] that tells the sizes, and counts its calls.
type lineCounter struct{ calls atomic.Int64 }

func (c *lineCounter) lines() odb.LineDiff {
	return func(_ context.Context, before, after []byte) ([]byte, error) {
		c.calls.Add(1)
		return fmt.Appendf(nil, "%d to %d", len(before), len(after)), nil
	}
}

// TestPathHistoriesAreGits compares the histories of all paths with git's differences of commits,
// before and after a rewrite, which compares nothing again.
func TestPathHistoriesAreGits(t *testing.T) {
	t.Parallel()
	for _, least := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d commits", least), func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 71, CommitCount: 120})
			counter := &lineCounter{}
			h := odbtest.NewPool(t, odb.Options{
				Limits: odb.Limits{HotCount: 1}, HistoryCommits: least, Lines: counter.lines,
			})
			h.PushGit(g, odbtest.Lines("", g.Tips()))
			h.BuildHistories()
			h.Fsck()
			changes := g.PathChanges()
			if known := compareHistories(t, h.View(), g.Commits(), changes, least); known == 0 {
				t.Error("there are no path histories")
			}
			first := counter.calls.Load()
			if done := h.CompactAll(true); done.LayerCount == 0 {
				t.Fatal("nothing was rewritten")
			}
			h.Fsck()
			compareHistories(t, h.View(), g.Commits(), changes, least)
			if again := counter.calls.Load() - first; first == 0 || again != 0 {
				t.Errorf("%d comparisons, %d after a rewrite", first, again)
			}
		})
	}
}

// compareHistories holds the histories of a view against git's changes. It returns how many commits
// and paths are known.
func compareHistories(
	t *testing.T, v *odb.View, commits []object.ID, changes odbtest.PathChanges, least int,
) (known int) {
	t.Helper()
	for path, all := range changes {
		type place struct {
			commit object.ID
			parent int
		}
		want := make(map[place]segment.PathChange)
		changed := 0
		for _, c := range all {
			want[place{c.Commit, c.Parent}] = c
			if c.Parent == 0 {
				changed++
			}
		}
		hasHistory := changed >= least && changes.IsFile(path)
		histories, err := v.OpenHistories(t.Context(), segment.PathID(path))
		odbtest.Must(t, err)
		for _, commit := range commits {
			_, isChanged := want[place{commit, 0}]
			for parent := range 2 {
				got, ok, err := histories.Find(t.Context(), commit, parent)
				odbtest.Must(t, err)
				if ok != (hasHistory && (parent == 0 || isChanged)) {
					t.Errorf("%q of %s against parent %d: known is %v", path, commit, parent, ok)
				}
				if !ok {
					continue
				}
				known++
				c, isChanged := want[place{commit, parent}]
				if (got != nil) != isChanged || got != nil && (got.Old != c.Old || got.New != c.New) {
					t.Errorf("%q of %s against parent %d: %+v, want %+v", path, commit, parent, got, c)
				}
			}
		}
		histories.Close()
	}
	return known
}
