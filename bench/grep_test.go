package bench_test

import (
	"context"
	"testing"

	"packhorse/engine"
)

// BenchmarkGrep searches the newest tree for absent text: "word" with a required literal, "class"
// without. The bytes are those of its files.
func BenchmarkGrep(b *testing.B) {
	ctx := context.Background()
	repo := openHistory(b).push(b, openHost(b, false), "r")
	view, err := repo.Objects(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, view.Close)
	size := int64(0)
	for _, f := range allFiles(b, repo) {
		info, err := view.Stat(ctx, f.ID)
		if err != nil {
			b.Fatal(err)
		}
		size += info.Size
	}
	for name, request := range map[string]engine.GrepRequest{
		"word":           {Pattern: "packhorses?[0-9]"},
		"word, any case": {Pattern: "packhorses?[0-9]", IgnoreCase: true},
		"class":          {Pattern: "[QXZ][qxz]{3}[QXZ]"},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				page, err := repo.Grep(ctx, request)
				if err != nil || len(page.Files) != 0 {
					b.Fatalf("%d files, %v", len(page.Files), err)
				}
			}
		})
	}
}
