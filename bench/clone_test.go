package bench_test

import (
	"context"
	"io"
	"testing"

	"packhorse/engine"
	"packhorse/pack/object"
)

// BenchmarkClone fetches from a repository as the push left it, once its bitmaps are made, and
// drops the pack. "fresh" generates every pack, "cached" uses the clone cache with its own policy.
func BenchmarkClone(b *testing.B) {
	h := openHistory(b)
	wants := []object.ID{h.tip}
	for _, setting := range []struct {
		name   string
		cached bool
	}{{"fresh", false}, {"cached", true}} {
		host := openHost(b, setting.cached)
		repo := h.push(b, host, "r")
		settle(b, host)
		for _, job := range []struct {
			name    string
			request engine.FetchRequest
		}{
			{"full", engine.FetchRequest{Wants: wants}},
			{"shallow", engine.FetchRequest{Wants: wants, Depth: 1}},
			{"partial", engine.FetchRequest{Wants: wants, Filter: "blob:none"}},
			{"incremental", engine.FetchRequest{Wants: wants, Haves: []object.ID{h.older}, Thin: true}},
		} {
			job.request.OFSDelta = true
			b.Run(job.name+"/"+setting.name, func(b *testing.B) {
				var bytes counter
				fetch(b, repo, job.request, &bytes) // finds the cache cold, whatever ran before
				i, before := 0, usedCPU(b)
				for b.Loop() {
					bytes = 0
					fetch(b, repo, job.request, &bytes)
					i++
				}
				b.ReportMetric(float64(usedCPU(b)-before)/float64(i), "cpu-ns/op")
				b.ReportMetric(float64(bytes), "pack-bytes")
			})
		}
	}
}

func fetch(b *testing.B, repo *engine.Repository, request engine.FetchRequest, w io.Writer) {
	b.Helper()
	ctx := context.Background()
	f, err := repo.Fetch(ctx, request)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Send(ctx, w, engine.SendOptions{}); err != nil {
		b.Fatal(err)
	}
}

// settle waits for the background work after a push.
func settle(b *testing.B, host *engine.Host) {
	b.Helper()
	for _, err := range host.Maintain(context.Background(), engine.MaintainOptions{}) {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
