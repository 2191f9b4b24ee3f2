package bench_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// BenchmarkMerge merges two branches of a repository whose sides changed ten files in ten folders,
// five each: of 1,000 files and of 100,000. Each merge is synced to disk.
func BenchmarkMerge(b *testing.B) {
	for _, files := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) { benchmarkMerge(b, files) })
	}
}

func benchmarkMerge(b *testing.B, count int) {
	b.Helper()
	ctx := context.Background()
	dir := b.TempDir()
	keys, err := kv.OpenPebble(dir+"/keys", kv.PebbleOptions{FS: vfs.Default, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, keys.Close)
	files, err := file.OpenDir(dir+"/files", file.DirOptions{FS: vfs.Default})
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, files.Close)
	host, err := engine.Open(ctx, engine.Config{KV: keys, Files: files})
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, func() error { return host.Close(ctx) })
	repo := enginetest.Create(b, host, "r")

	path := func(i int) string { return fmt.Sprintf("d%03d/f%05d", i%(count/100), i) }
	all := make([]string, count)
	for i := range all {
		all[i] = path(i)
	}
	commitFiles(b, repo, "main", "", all...)
	commitFiles(b, repo, "dev", "main", all[:5]...)
	actor := engine.Actor{Org: enginetest.Org, Subject: "bench"}
	n := 0
	for b.Loop() {
		b.StopTimer()
		n++
		target := fmt.Sprint("target", n)
		commitFiles(b, repo, target, "main", all[5:10]...)
		b.StartTimer()
		outcome, err := repo.Merge(ctx, actor, engine.MergeRequest{
			Source: engine.CommitName{Text: "dev"}, Target: engine.MergeBranch{Name: target}, Strategy: engine.AlwaysMerge,
			Details: engine.CommitDetails{
				Message: fmt.Sprint("merge ", n), Author: commit.Person{Name: "B", Email: "b@example.com"},
			},
		})
		if err != nil || outcome.Kind != engine.MergeCommitted {
			b.Fatal(outcome.Kind, err)
		}
	}
}

// commitFiles writes files of a few lines, other ones on each branch.
func commitFiles(b *testing.B, repo *engine.Repository, branch, base string, paths ...string) {
	b.Helper()
	ctx := context.Background()
	operations := make([]engine.FileOperation, len(paths))
	for i, path := range paths {
		operations[i] = engine.FileOperation{Path: path, ContentID: path, Mode: object.ModeBlob}
	}
	u, err := repo.NewUpload(ctx, engine.Actor{Org: enginetest.Org, Subject: "bench"}, engine.UploadRequest{
		Target:     engine.CommitTarget{Branch: branch, Base: base},
		Details:    engine.CommitDetails{Message: "files", Author: commit.Person{Name: "B", Email: "b@example.com"}},
		Operations: operations,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer u.Close()
	for _, path := range paths {
		if err := u.Chunk(ctx, path, fmt.Appendf(nil, "%s of %d files on %s\n", path, len(paths), branch), true); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := u.Finish(ctx); err != nil {
		b.Fatal(err)
	}
}
