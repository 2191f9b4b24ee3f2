package bench_test

import (
	"path/filepath"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/packgen"
)

// BenchmarkMaintain maintains a repository of API commits. It measures one flush, one merge of
// flushed segments, the full search of deltas that runs when a pool has doubled, and a search of
// all deltas from scratch. It reports the cost of a rewritten object and the size on the disk.
func BenchmarkMaintain(b *testing.B) {
	commits, files := 2000, 400
	if testing.Short() {
		commits, files = 60, 20
	}
	// part commits a part of the history and folds it.
	part := func(b *testing.B, host *engine.Host, repo *engine.Repository, w *steadyWriter, commits int) {
		b.Helper()
		for range commits {
			w.change(b, repo)
		}
		maintain(b, host, engine.MaintainOptions{ReaderGrace: -1})
	}
	for _, job := range []struct {
		name string
		// prepare brings the repository to where the job begins.
		prepare func(b *testing.B, host *engine.Host, repo *engine.Repository, w *steadyWriter)
		options engine.MaintainOptions
	}{
		{name: "fold", prepare: func(b *testing.B, _ *engine.Host, repo *engine.Repository, w *steadyWriter) {
			b.Helper()
			for range commits / 4 {
				w.change(b, repo)
			}
		}},
		{name: "merge", prepare: func(b *testing.B, host *engine.Host, repo *engine.Repository, w *steadyWriter) {
			b.Helper()
			part(b, host, repo, w, commits/2)
			part(b, host, repo, w, commits/5)
			for range commits / 8 {
				w.change(b, repo)
			}
		}},
		{name: "full", prepare: func(b *testing.B, host *engine.Host, repo *engine.Repository, w *steadyWriter) {
			b.Helper()
			part(b, host, repo, w, commits*2/3)
			part(b, host, repo, w, commits*2/9)
		}, options: engine.MaintainOptions{All: true}},
		{name: "anew", prepare: func(b *testing.B, host *engine.Host, repo *engine.Repository, w *steadyWriter) {
			b.Helper()
			part(b, host, repo, w, commits)
		}, options: engine.MaintainOptions{All: true, RepackOptions: packgen.RepackOptions{Anew: true}}},
	} {
		b.Run(job.name, func(b *testing.B) {
			var objects, size int64
			for b.Loop() {
				b.StopTimer()
				dir := b.TempDir()
				host := openHostIn(b, dir, engine.Config{})
				repo := enginetest.Create(b, host, "r")
				w := newSteadyWriter(files)
				w.commitAll(b, repo)
				job.prepare(b, host, repo, w)
				options := job.options
				options.ReaderGrace, options.Workers = -1, 2
				b.StartTimer()
				objects += maintain(b, host, options)
				b.StopTimer()
				size += sizeOf(b, filepath.Join(dir, "files"))
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(max(objects, 1)), "us/object")
			b.ReportMetric(float64(objects)/float64(b.N), "objects/op")
			b.ReportMetric(float64(size)/float64(b.N), "stored-bytes")
		})
	}
}
