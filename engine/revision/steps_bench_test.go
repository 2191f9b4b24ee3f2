package revision_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"packhorse/engine/revision"
	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/odbtest"
)

// BenchmarkRevision resolves HEAD~10000, or the farthest ancestor of a shorter history, of the
// repository that PACKHORSE_REAL_REPO names or of a made-up one: the very first time, by the plain
// walk, with an empty memory of jumps, with a full one, and after HEAD has moved on by 50 commits.
func BenchmarkRevision(b *testing.B) {
	git := odbtest.NewRepository(b)
	if dir := os.Getenv("PACKHORSE_REAL_REPO"); dir != "" {
		git = odbtest.RepositoryOf(b, oracle.Open(b, dir))
	} else {
		git.Seed(oracle.History{Seed: 1, Commits: 500, Files: 5})
	}
	line := git.IDs("", "rev-list", "--first-parent", "HEAD")
	pool := odbtest.NewPool(b, odb.Options{Limits: odb.Limits{HotCount: 1}})
	pool.PushSegment(git.Input([]byte("HEAD\n"), "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q"))
	view := pool.View()
	back := min(10_000, len(line)-1)
	resolve := func(b *testing.B, from, back int, jumps *revision.Jumps) {
		b.Helper()
		found, err := revision.Resolve(b.Context(), fmt.Sprintf("HEAD~%d", back), oneBranch{line[from]}, view, jumps)
		if err != nil || found.Commit != line[from+back] {
			b.Fatal(found, err)
		}
	}
	began := time.Now()
	resolve(b, 0, back, nil)
	first := time.Since(began)
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			resolve(b, 0, back, nil)
		}
		b.ReportMetric(float64(first.Microseconds())/1000, "first-ms")
	})
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			resolve(b, 0, back, revision.NewJumps(4<<20))
		}
	})
	b.Run("warm", func(b *testing.B) {
		jumps := revision.NewJumps(4 << 20)
		resolve(b, 0, back, jumps)
		for b.Loop() {
			resolve(b, 0, back, jumps)
		}
	})
	b.Run("moved", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			jumps := revision.NewJumps(4 << 20)
			resolve(b, min(50, back), back-min(50, back), jumps)
			b.StartTimer()
			resolve(b, 0, back, jumps)
		}
	})
}
