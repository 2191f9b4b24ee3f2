package bench_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
)

// BenchmarkUpload commits one large file through the API, in chunks of 1 MiB: 100 MiB, or 8 MiB
// when short.
func BenchmarkUpload(b *testing.B) {
	chunks := 100
	if testing.Short() {
		chunks = 8
	}
	random := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random)
	text := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog. ", 1+len(random)/45)[:len(random)])
	for name, chunk := range map[string][]byte{"random": random, "text": text} {
		b.Run(name, func(b *testing.B) {
			repo := enginetest.Create(b, openHost(b, false), "r")
			b.SetBytes(int64(chunks * len(chunk)))
			number := byte(0)
			for b.Loop() {
				number++
				chunk[0] = number // another file each time
				uploadLarge(b, repo, chunk, chunks)
			}
		})
	}
}

func uploadLarge(b *testing.B, repo *engine.Repository, chunk []byte, count int) {
	b.Helper()
	ctx := context.Background()
	u, err := repo.NewUpload(ctx, bencher, engine.UploadRequest{
		Target:     engine.CommitTarget{Branch: "main"},
		Details:    engine.CommitDetails{Message: "large", Author: commit.Person{Name: "B", Email: "b@example.com"}},
		Operations: []engine.FileOperation{{Path: "large", ContentID: "1"}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer u.Close()
	for i := range count {
		if err := u.Chunk(ctx, "1", chunk, i == count-1); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := u.Finish(ctx); err != nil {
		b.Fatal(err)
	}
}
