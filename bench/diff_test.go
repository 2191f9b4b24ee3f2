package bench_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"packhorse/engine"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// BenchmarkDiff compares the newest commits with their first parents, one an operation, as the API
// does but for JSON and HTTP.
func BenchmarkDiff(b *testing.B) {
	ctx := context.Background()
	h := openHistory(b)
	repo := h.push(b, openHost(b, false), "r")
	view, err := repo.Objects(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, view.Close)
	var commits []string
	for c, err := range revwalk.Walk(ctx, view, revwalk.WalkOptions{Tips: []object.ID{h.tip}}) {
		if err != nil {
			b.Fatal(err)
		}
		if commits = append(commits, c.ID.String()); len(commits) == 1000 {
			break
		}
	}
	size, i, before := int64(0), 0, usedCPU(b)
	for b.Loop() {
		name := engine.CommitName{Text: commits[i%len(commits)]}
		d, err := repo.CommitDiff(ctx, engine.CommitDiffRequest{Commit: name}, free{})
		if err != nil {
			b.Fatal(err)
		}
		for f, err := range d.Files(func() error { return nil }) {
			if err != nil {
				b.Fatal(err)
			}
			size += f.Bytes
		}
		closeStore(b, d.Close)
		i++
	}
	b.SetBytes(size / int64(i))
	b.ReportMetric(float64(usedCPU(b)-before)/float64(i), "cpu-ns/op")
}

// usedCPU is the CPU time of the process, which is a better measure than the clock where several
// processors compute.
func usedCPU(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// free admits every computation.
type free struct{}

func (free) Slot(context.Context) (func(), error)           { return func() {}, nil }
func (free) Reserve(context.Context, int64) (func(), error) { return func() {}, nil }
