package bench_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"

	"packhorse/engine"
)

// BenchmarkBlame blames the file that most commits have changed, as the API does but for JSON and
// HTTP: all of its lines, and the first 1,500, by a server that remembers nothing; and again by one
// that does.
func BenchmarkBlame(b *testing.B) {
	ctx := context.Background()
	h := openHistory(b)
	const forgetful = 1
	for _, part := range []struct {
		name         string
		ranges       []string
		historyBytes int64
	}{{"whole", nil, forgetful}, {"first", []string{"1,+1500"}, forgetful}, {"again", nil, 0}} {
		b.Run(part.name, func(b *testing.B) {
			host := openHostIn(b, b.TempDir(), engine.Config{HistoryBytes: part.historyBytes})
			repo := h.push(b, host, "r")
			settle(b, host)
			lines, i, before := 0, 0, usedCPU(b)
			for b.Loop() {
				blame, err := repo.Blame(ctx, engine.BlameRequest{Path: h.busiest, Ranges: part.ranges})
				if err != nil {
					b.Fatal(err)
				}
				lines = 0
				for _, err := range blame.Lines(ctx) {
					if err != nil {
						b.Fatal(err)
					}
					lines++
				}
				closeStore(b, blame.Close)
				i++
			}
			b.ReportMetric(float64(usedCPU(b)-before)/float64(i), "cpu-ns/op")
			b.ReportMetric(float64(lines), "lines")
		})
	}
}

// busiest returns the file that most commits changed. Both arguments are lists of files, a line
// each: those of every commit, and those of the newest one.
func busiest(changed, files string) (path string) {
	counts := make(map[string]int)
	for path := range strings.SplitSeq(changed, "\n") {
		counts[path]++
	}
	return slices.MaxFunc(strings.Split(files, "\n"), func(x, y string) int { return cmp.Compare(counts[x], counts[y]) })
}
