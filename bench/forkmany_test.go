package bench_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/pack/object"
)

// BenchmarkForkMany alternately commits to a base and forks it, with maintenance in the background,
// and measures each fork, its first listing, clone and commit, and "used", the time from its
// creation until all three have been done: the last hundred against the first, the 99th percentile
// and the longest of all, and the heap after the first hundred and after all. Every tenth fork is
// also asked for the first commit by its ID, which requires its visibility set. A hundred is told
// by the mean of its middle half: every second fork merges hot layers, so the median falls between
// two sizes by chance.
//
// The store has grown by then, too. So the last hundred also take turns with the first hundred of
// another base, which has the same files: "last/other" is what the number of forks costs by itself.
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
var forkSteps = []string{"base-commit", "fork", "read", "clone", "commit", "used", "by-id"}

func forkMany(b *testing.B, forks, files int) {
	b.Helper()
	host := openHostIn(b, b.TempDir(), engine.Config{Background: true})
	part := max(1, min(100, forks/3))
	base := newForkedBase(b, host, "base", files)
	for range part {
		base.fork(b)
	}
	b.ReportMetric(heapMiB(), "heap-first-MiB")
	for range forks - 2*part {
		base.fork(b)
	}
	other := newForkedBase(b, host, "other", files)
	for range part {
		base.fork(b)
		other.fork(b)
	}
	for _, step := range forkSteps {
		all := base.took[step]
		part := len(other.took[step])
		early, late := midmean(all[:part]), midmean(all[len(all)-part:])
		b.ReportMetric(float64(early.Microseconds())/1000, step+"-first-ms")
		b.ReportMetric(float64(late.Microseconds())/1000, step+"-last-ms")
		b.ReportMetric(late.Seconds()/early.Seconds(), step+"-last/first")
		b.ReportMetric(late.Seconds()/midmean(other.took[step]).Seconds(), step+"-last/other")
		b.ReportMetric(float64(quantile(all, 0.99).Microseconds())/1000, step+"-p99-ms")
		b.ReportMetric(float64(slices.Max(all).Microseconds())/1000, step+"-max-ms")
	}
	b.ReportMetric(heapMiB(), "heap-last-MiB")
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
}

// midmean returns the mean of the middle half of durations.
func midmean(of []time.Duration) (mean time.Duration) {
	middle := slices.Sorted(slices.Values(of))[len(of)/4 : len(of)-len(of)/4]
	for _, took := range middle {
		mean += took / time.Duration(len(middle))
	}
	return mean
}

// forkedBase is a repository that is committed to and forked in turn.
type forkedBase struct {
	host  *engine.Host
	name  string
	repo  *engine.Repository
	w     *steadyWriter
	first object.ID
	took  steps
}

func newForkedBase(b *testing.B, host *engine.Host, name string, files int) *forkedBase {
	b.Helper()
	base := &forkedBase{
		host: host, name: name, repo: enginetest.Create(b, host, name), w: newSteadyWriter(0), took: make(steps),
	}
	for range files {
		base.w.contents = append(base.w.contents, base.w.lines(4))
	}
	base.w.commitAll(b, base.repo)
	base.first = base.w.tip
	return base
}

// fork commits to the base, forks it, and uses the fork.
func (base *forkedBase) fork(b *testing.B) {
	b.Helper()
	ctx, w, took := context.Background(), base.w, base.took
	i := len(took["fork"])
	took["base-commit"] = append(took["base-commit"], w.change(b, base.repo))
	name := fmt.Sprintf("fork-of-%s-%06d", base.name, i)
	request := engine.CreateRequest{Name: name, Base: &engine.Base{Name: base.name}}
	took.time(b, "fork", func() error {
		_, err := base.host.CreateRepository(ctx, bencher, request)
		return err
	})
	created := time.Now()
	fork, err := base.host.Repository(ctx, enginetest.Org, name)
	if err != nil {
		b.Fatal(err)
	}
	took.time(b, "read", func() error { return list(ctx, fork) })
	took.time(b, "clone", func() error {
		request := engine.FetchRequest{Wants: []object.ID{w.tip}, OFSDelta: true}
		if len(w.contents) > 1000 {
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
	took["used"] = append(took["used"], time.Since(created))
	if i%10 == 0 {
		took.time(b, "by-id", func() error {
			_, err := fork.Commit(ctx, engine.CommitName{Text: base.first.String()})
			return err
		})
	}
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
