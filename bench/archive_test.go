package bench_test

import (
	"context"
	"io"
	"testing"

	"packhorse/engine"
)

// BenchmarkArchive archives the newest tree: "tar" uncompressed, "tar.gz" compressed. The bytes are
// those of the tar stream.
func BenchmarkArchive(b *testing.B) {
	ctx := context.Background()
	repo := openHistory(b).push(b, openHost(b, false), "r")
	a, err := repo.Archive(ctx, engine.ArchiveRequest{})
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, a.Close)
	var stream counter
	if err := a.WriteTar(ctx, &stream); err != nil {
		b.Fatal(err)
	}
	for name, write := range map[string]func(context.Context, io.Writer) error{"tar": a.WriteTar, "tar.gz": a.Write} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(stream))
			var size counter
			for b.Loop() {
				size = 0
				if err := write(ctx, &size); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size), "bytes/op")
		})
	}
}
