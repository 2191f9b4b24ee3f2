package bench_test

import (
	"context"
	"testing"

	"packhorse/engine"
)

// BenchmarkGrep searches the newest tree for absent text: "word" with a required literal, "class"
// without, by a server that remembers nothing; and "again" by one that does. The bytes are those of
// its files.
func BenchmarkGrep(b *testing.B) {
	ctx := context.Background()
	h := openHistory(b)
	const forgetful = 1
	for _, run := range []struct {
		name         string
		request      engine.GrepRequest
		historyBytes int64
	}{
		{"word", engine.GrepRequest{Pattern: "packhorses?[0-9]"}, forgetful},
		{"word, any case", engine.GrepRequest{Pattern: "packhorses?[0-9]", IgnoreCase: true}, forgetful},
		{"class", engine.GrepRequest{Pattern: "[QXZ][qxz]{3}[QXZ]"}, forgetful},
		{"again", engine.GrepRequest{Pattern: "packhorses?[0-9]"}, 0},
	} {
		b.Run(run.name, func(b *testing.B) {
			repo := h.push(b, openHostIn(b, b.TempDir(), engine.Config{HistoryBytes: run.historyBytes}), "r")
			b.SetBytes(sizeOfFiles(b, repo))
			i, before := 0, usedCPU(b)
			for b.Loop() {
				page, err := repo.Grep(ctx, run.request)
				if err != nil || len(page.Files) != 0 {
					b.Fatalf("%d files, %v", len(page.Files), err)
				}
				i++
			}
			b.ReportMetric(float64(usedCPU(b)-before)/float64(i), "cpu-ns/op")
		})
	}
}

// sizeOfFiles returns the size of all files of the default branch.
func sizeOfFiles(b *testing.B, repo *engine.Repository) (size int64) {
	b.Helper()
	ctx := context.Background()
	view, err := repo.Objects(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, view.Close)
	for _, f := range allFiles(b, repo) {
		info, err := view.Stat(ctx, f.ID)
		if err != nil {
			b.Fatal(err)
		}
		size += info.Size
	}
	return size
}
