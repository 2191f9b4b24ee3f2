package bench_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/pack/object"
)

// BenchmarkForkMany alternately commits to a base and forks it, with maintenance in the background,
// and measures each fork, and its first listing, clone and commit: the median of the last hundred
// against that of the first, and the 99th percentile of all, and the heap after the first hundred
// and after all. Every tenth fork is also asked for the first commit by its ID, which requires its
// visibility set.
//
// PACKHORSE_FORKS is the number of forks instead of 300, PACKHORSE_FORK_FILES that of files in the
// base instead of 1,000. With more than 1,000 files a clone is of the tip alone (depth 1).
func BenchmarkForkMany(b *testing.B) {
	forks, files := 300, 1000
	if testing.Short() {
		forks, files = 40, 100
	}
	if n, err := strconv.Atoi(os.Getenv("PACKHORSE_FORKS")); err == nil {
		forks = n
	}
	if n, err := strconv.Atoi(os.Getenv("PACKHORSE_FORK_FILES")); err == nil {
		files = n
	}
	for b.Loop() {
		forkMany(b, forks, files)
	}
}

// forkSteps are the measured steps, in this order.
var forkSteps = []string{"base-commit", "fork", "read", "clone", "commit", "by-id"}

func forkMany(b *testing.B, forks, files int) {
	b.Helper()
	ctx := context.Background()
	host := openHostIn(b, b.TempDir(), engine.Config{Background: true})
	base := enginetest.Create(b, host, "base")
	w := newSteadyWriter(0)
	for range files {
		w.contents = append(w.contents, w.lines(4))
	}
	w.commitAll(b, base)
	first := w.tip
	took := make(steps)
	part := max(1, min(100, forks/3))
	for i := range forks {
		if i == part {
			b.ReportMetric(heapMiB(), "heap-first-MiB")
		}
		took["base-commit"] = append(took["base-commit"], w.change(b, base))
		name := fmt.Sprintf("fork-%06d", i)
		took.time(b, "fork", func() error {
			_, err := host.CreateRepository(ctx, bencher, engine.CreateRequest{Name: name, Base: &engine.Base{Name: "base"}})
			return err
		})
		fork, err := host.Repository(ctx, enginetest.Org, name)
		if err != nil {
			b.Fatal(err)
		}
		took.time(b, "read", func() error { return list(ctx, fork) })
		took.time(b, "clone", func() error {
			request := engine.FetchRequest{Wants: []object.ID{w.tip}, OFSDelta: true}
			if files > 1000 {
				request.Filter = "blob:none"
				request.Depth = 1
			}
			f, err := fork.Fetch(ctx, request)
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Send(ctx, io.Discard, engine.SendOptions{})
		})
		took.time(b, "commit", func() error { writeOne(b, fork, int64(i)); return nil })
		if i%10 == 0 {
			took.time(b, "by-id", func() error { _, err := fork.Commit(ctx, engine.CommitName{Text: first.String()}); return err })
		}
	}
	for _, step := range forkSteps {
		all := took[step]
		part := min(part, max(1, len(all)/3))
		early, late := quantile(all[:part], 0.5), quantile(all[len(all)-part:], 0.5)
		b.ReportMetric(float64(early.Microseconds())/1000, step+"-first-ms")
		b.ReportMetric(float64(late.Microseconds())/1000, step+"-last-ms")
		b.ReportMetric(late.Seconds()/early.Seconds(), step+"-last/first")
		b.ReportMetric(float64(quantile(all, 0.99).Microseconds())/1000, step+"-p99-ms")
	}
	b.ReportMetric(heapMiB(), "heap-last-MiB")
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
}

// heapMiB returns the size of what is live on the heap.
func heapMiB() float64 {
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapAlloc) / (1 << 20)
}

// list reads the first names of a listing of files.
func list(ctx context.Context, repo *engine.Repository) error {
	files, err := repo.Files(ctx, engine.FilesRequest{})
	if err != nil {
		return err
	}
	count := 0
	for _, err := range files.All(ctx) {
		if err != nil {
			return err
		}
		if count++; count == 1000 {
			break
		}
	}
	return files.Close()
}
