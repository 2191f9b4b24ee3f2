package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/pack/object"
)

// BenchmarkCommitFiles makes commits of 100 files of 1 KiB, each commit in a new folder.
func BenchmarkCommitFiles(b *testing.B) {
	const files = 100
	ctx := context.Background()
	repo := enginetest.Create(b, openHost(b, false), "r")
	number := 0
	b.ReportAllocs()
	for b.Loop() {
		number++
		operations := make([]engine.FileOperation, files)
		for i := range operations {
			operations[i] = engine.FileOperation{
				Path: fmt.Sprintf("d%d/f%d", number, i), ContentID: fmt.Sprint(i), Mode: object.ModeBlob,
			}
		}
		u, err := repo.NewUpload(ctx, engine.Actor{Org: enginetest.Org, Subject: "bench"}, engine.UploadRequest{
			Target:     engine.CommitTarget{Branch: "main"},
			Details:    engine.CommitDetails{Message: "files", Author: commit.Person{Name: "B", Email: "b@example.com"}},
			Operations: operations,
		})
		if err != nil {
			b.Fatal(err)
		}
		for i := range files {
			content := bytes.Repeat(fmt.Appendf(nil, "a line of %d in %d\n", i, number), 50)
			if err := u.Chunk(ctx, fmt.Sprint(i), content, true); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := u.Finish(ctx); err != nil {
			b.Fatal(err)
		}
		u.Close()
	}
}
