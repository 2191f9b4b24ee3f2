package ingest_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/ingest"
	"packhorse/odb/odbtest"
)

// BenchmarkIngest ingests a pack into an empty pool on disk: a seeded history or, if
// PACKHORSE_BENCH_PACK names one, a real pack.
func BenchmarkIngest(b *testing.B) {
	packed := benchPack(b)
	b.SetBytes(int64(len(packed)))
	b.ReportAllocs()
	var stats ingest.Stats
	for b.Loop() {
		b.StopTimer()
		h := odbtest.NewPoolOn(b, vfs.Default, b.TempDir(), odb.Options{})
		v := h.View()
		b.StartTimer()
		in, err := ingest.Read(b.Context(), v, bytes.NewReader(packed), ingest.Options{})
		h.Must(err)
		q, resolved, err := in.Resolve(b.Context(), nil)
		h.Must(err)
		b.StopTimer()
		stats = resolved
		h.Must(q.Close())
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
	return odbtest.PackAll(git, "--delta-base-offset")
}

// BenchmarkIngestSmall ingests the thin pack of one commit that changes one file, into a pool that
// has the history before it.
func BenchmarkIngestSmall(b *testing.B) {
	git := oracle.New(b)
	git.Seed(oracle.History{Seed: 1, Commits: 300, Files: 200})
	h := odbtest.NewPool(b, odb.Options{})
	before := git.Input([]byte("main~1\n"), "pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset")
	if _, err := h.Push(before, ingest.Options{}); err != nil {
		b.Fatal(err)
	}
	packed := git.Input([]byte("main\n^main~1\n"), "pack-objects", "--revs", "--stdout", "-q", "--thin",
		"--delta-base-offset")
	v := h.View()
	b.ReportAllocs()
	for b.Loop() {
		in, err := ingest.Read(b.Context(), v, bytes.NewReader(packed), ingest.Options{})
		h.Must(err)
		q, _, err := in.Resolve(b.Context(), nil)
		h.Must(err)
		h.Must(q.Close())
	}
}
