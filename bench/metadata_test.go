package bench_test

import (
	"context"
	"path"
	"testing"

	"packhorse/engine"
)

// BenchmarkMetadata lists the whole tree with the last commit of every file, or the entries of a
// folder: "cold" knows nothing of an earlier listing, "warm" has one of the same commit, "list" is
// the tree alone.
func BenchmarkMetadata(b *testing.B) {
	h := openHistory(b)
	for _, run := range []struct {
		name    string
		bytes   int64
		request engine.MetadataRequest
	}{
		{"cold", 1, engine.MetadataRequest{}},
		{"warm", 64 << 20, engine.MetadataRequest{}},
		{"cold/root", 1, engine.MetadataRequest{Flat: true}},
		{"cold/folder", 1, engine.MetadataRequest{Flat: true, Path: path.Dir("/" + h.busiest)[1:]}},
	} {
		b.Run(run.name, func(b *testing.B) {
			repo := h.push(b, openHostIn(b, b.TempDir(), engine.Config{HistoryBytes: run.bytes}), "r")
			listMetadata(b, repo, run.request)
			files, commits := 0, 0
			for b.Loop() {
				files, commits = listMetadata(b, repo, run.request)
			}
			b.ReportMetric(float64(files), "files")
			b.ReportMetric(float64(commits), "commits")
		})
	}
	b.Run("list", func(b *testing.B) {
		repo := h.push(b, openHost(b, false), "r")
		files := 0
		for b.Loop() {
			files = len(allFiles(b, repo))
		}
		b.ReportMetric(float64(files), "files")
	})
}

func listMetadata(b *testing.B, repo *engine.Repository, request engine.MetadataRequest) (files, commits int) {
	b.Helper()
	ctx := context.Background()
	list, err := repo.Metadata(ctx, request)
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, list.Close)
	for range list.Files() {
		files++
	}
	for _, err := range list.Commits(ctx) {
		if err != nil {
			b.Fatal(err)
		}
		commits++
	}
	return files, commits
}
