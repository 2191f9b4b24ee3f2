package odb_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
)

// BenchmarkIngest ingests a pack into an empty pool on disk: a seeded history or, if PACKHORSE_BENCH_PACK names one, a real pack.
func BenchmarkIngest(b *testing.B) {
	packed := benchPack(b)
	b.SetBytes(int64(len(packed)))
	b.ReportAllocs()
	var stats odb.IngestStats
	for b.Loop() {
		b.StopTimer()
		h := &ingestHost{tb: b}
		h.open(vfs.Default, b.TempDir(), odb.Options{})
		v := h.view()
		b.StartTimer()
		in, err := v.Ingest(b.Context(), bytes.NewReader(packed), odb.IngestOptions{})
		h.must(err)
		q, resolved, err := in.Resolve(b.Context(), nil)
		h.must(err)
		b.StopTimer()
		stats = resolved
		h.must(q.Close())
		b.StartTimer()
	}
	b.ReportMetric(stats.ReadTime.Seconds(), "read-s")
	b.ReportMetric(stats.ResolveTime.Seconds(), "resolve-s")
}

func benchPack(b *testing.B) []byte {
	b.Helper()
	if name := os.Getenv("PACKHORSE_BENCH_PACK"); name != "" {
		packed, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		return packed
	}
	git := oracle.New(b)
	git.Seed(oracle.History{Seed: 1, Commits: 2000, Files: 300, Merges: true, Tags: true, Binary: true})
	return packAll(git, "--delta-base-offset")
}
