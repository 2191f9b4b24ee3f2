package bench_test

import (
	"context"
	"testing"

	"packhorse/engine"
)

// BenchmarkWalk lists: the newest 20 commits, the whole history in pages of 1,000, and the whole
// tree.
func BenchmarkWalk(b *testing.B) {
	repo := openHistory(b).push(b, openHost(b, false), "r")
	b.Run("newest", func(b *testing.B) {
		for b.Loop() {
			if _, err := repo.Commits(context.Background(), engine.CommitsRequest{Limit: 20}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("history", func(b *testing.B) {
		count := 0
		for b.Loop() {
			count = walkHistory(b, repo)
		}
		b.ReportMetric(float64(count), "commits")
	})
	b.Run("tree", func(b *testing.B) {
		count := 0
		for b.Loop() {
			count = len(allFiles(b, repo))
		}
		b.ReportMetric(float64(count), "files")
	})
}

// walkHistory returns the number of commits.
func walkHistory(b *testing.B, repo *engine.Repository) int {
	b.Helper()
	request := engine.CommitsRequest{Limit: 1000}
	for count := 0; ; {
		page, err := repo.Commits(context.Background(), request)
		if err != nil {
			b.Fatal(err)
		}
		for _, err := range page.All(context.Background()) {
			if err != nil {
				b.Fatal(err)
			}
			count++
		}
		if err := page.Close(); err != nil {
			b.Fatal(err)
		}
		if request.Cursor = page.Next; request.Cursor == "" {
			return count
		}
	}
}
