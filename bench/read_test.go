package bench_test

import (
	"context"
	"io"
	"testing"

	"packhorse/engine"
)

// BenchmarkRead reads every object of the newest tree once around, one object an operation:
// "objects" through a view, "files" as the API reads a file, which also finds the commit that
// changed it last.
func BenchmarkRead(b *testing.B) {
	ctx := context.Background()
	repo := openHistory(b).push(b, openHost(b, false), "r")
	files := allFiles(b, repo)
	b.Run("objects", func(b *testing.B) {
		view, err := repo.Objects(ctx)
		if err != nil {
			b.Fatal(err)
		}
		defer closeStore(b, view.Close)
		size := int64(0)
		i := 0
		for b.Loop() {
			content, err := view.Open(ctx, files[i%len(files)].ID)
			if err != nil {
				b.Fatal(err)
			}
			n, err := content.WriteTo(io.Discard)
			if err != nil {
				b.Fatal(err)
			}
			content.Close()
			size += n
			i++
		}
		b.SetBytes(size / int64(i))
	})
	b.Run("files", func(b *testing.B) {
		i := 0
		for b.Loop() {
			f, err := repo.File(ctx, engine.FileRequest{Path: files[i%len(files)].Path})
			if err != nil {
				b.Fatal(err)
			}
			content, err := f.Content(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := content.WriteTo(io.Discard); err != nil {
				b.Fatal(err)
			}
			closeStore(b, content.Close)
			closeStore(b, f.Close)
			i++
		}
	})
}

// allFiles returns the files of the default branch.
func allFiles(b *testing.B, repo *engine.Repository) []engine.File {
	b.Helper()
	ctx := context.Background()
	listing, err := repo.Files(ctx, engine.FilesRequest{})
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, listing.Close)
	var files []engine.File
	for f, err := range listing.All(ctx) {
		if err != nil {
			b.Fatal(err)
		}
		if !f.Mode.IsTree() && !f.Mode.IsGitlink() {
			files = append(files, f)
		}
	}
	return files
}
