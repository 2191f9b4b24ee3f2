package repack_test

import (
	"context"
	"fmt"
	"strings"
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

// TestPathHistoriesAreGits compares the histories of all paths with git's differences of commits:
// of a segment; of one that it became with later commits, which takes over its rows; and of one
// that is made anew.
func TestPathHistoriesAreGits(t *testing.T) {
	t.Parallel()
	for _, least := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d commits", least), func(t *testing.T) {
			t.Parallel()
			g := odbtest.NewHistory(t, odbtest.HistoryOptions{Seed: 71, CommitCount: 120})
			commits := g.Commits()
			var early, reached []object.ID // most of them
			for n := 0; len(reached) < 85*len(commits)/100; n++ {
				early = append(early, commits[len(commits)-1-n])
				reached = g.IDs(odbtest.Lines("", early), "rev-list", "--stdin")
			}
			counter := &lineCounter{}
			h := odbtest.NewPool(t, odb.Options{
				Limits: odb.Limits{HotCount: 1}, HistoryCommits: least, Lines: counter.lines,
			})
			h.PushGit(g, odbtest.Lines("", early))
			h.BuildHistories()
			h.Fsck()
			all := g.PathChanges()
			before := all.Of(reached)
			has := func(changes odbtest.PathChanges) func(string) bool {
				return func(path string) bool { return changes.Commits(path) >= least && changes.IsFile(path) }
			}
			if known := compareHistories(t, h.View(), reached, before, has(before)); known == 0 {
				t.Error("there are no path histories")
			}
			first := counter.calls.Load()

			h.PushGit(g, odbtest.Lines("", g.Tips())+odbtest.Lines("^", early))
			if done := h.CompactAll(false); done.LayerCount != 2 {
				t.Fatalf("%d layers became one", done.LayerCount)
			}
			h.Fsck()
			compareHistories(t, h.View(), commits, all, func(path string) bool { return has(before)(path) && all.IsFile(path) })
			if again := counter.calls.Load() - first; again == 0 || again > first/2 {
				t.Errorf("%d comparisons, %d of them for the later commits", first+again, again)
			}

			if done := h.CompactAll(true); done.LayerCount == 0 {
				t.Fatal("nothing was rewritten")
			}
			h.Fsck()
			compareHistories(t, h.View(), commits, all, has(all))
		})
	}
}

// compareHistories holds the histories of a view against git's changes; has says which paths have
// one. It returns how many commits and paths are known.
func compareHistories(
	t *testing.T, v *odb.View, commits []object.ID, changes odbtest.PathChanges, has func(path string) bool,
) (known int) {
	t.Helper()
	for path, all := range changes {
		type place struct {
			commit object.ID
			parent int
		}
		want := make(map[place]segment.PathChange)
		for _, c := range all {
			want[place{c.Commit, c.Parent}] = c
		}
		hasHistory := has(path)
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

// TestPathHistoriesOfManyChanges: a segment whose commits change more paths than may be sorted has
// empty histories, and is not looked at again.
func TestPathHistoriesOfManyChanges(t *testing.T) {
	t.Parallel()
	var stream strings.Builder
	for i := range 4 {
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter C <c@d> %d +0000\ndata 1\nm\n", 1_700_000_000+i)
		for k := range 100 {
			fmt.Fprintf(&stream, "M 100644 inline %d\ndata 1\n%d\n", k, i)
		}
	}
	g := odbtest.NewRepository(t)
	g.Input([]byte(stream.String()), "fast-import", "--quiet")
	for most, count := range map[int]int{100: 0, 1000: 100} {
		h := odbtest.NewPool(t, odb.Options{
			Limits: odb.Limits{HotCount: 1}, HistoryCommits: 1, HistoryChanges: most,
		})
		h.PushSegment(odbtest.PackAll(g.Repository))
		h.BuildHistories()
		h.Fsck()
		for _, l := range h.View().Segments() {
			if l.Histories == nil {
				t.Fatalf("with %d changes at most the segment has no history file", most)
			}
			f, err := l.Histories.Acquire(t.Context())
			odbtest.Must(t, err)
			if f.Count != count {
				t.Errorf("%d histories of 100 files, with %d changes at most; want %d", f.Count, most, count)
			}
			l.Histories.Release()
		}
	}
}
