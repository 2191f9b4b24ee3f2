package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/engine/pathpolicy"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// BenchmarkPushPaths pushes 10,000 commits, 300 with -short, onto a first one, free and under a
// policy of paths that lets them through, in turns. "ratio" is the median time of the second by
// that of the first; half of an operation is each.
func BenchmarkPushPaths(b *testing.B) {
	commits := 10_000
	if testing.Short() {
		commits = 300
	}
	git := oracle.New(b)
	tip := git.Seed(oracle.History{Seed: 3, Commits: commits, Files: 300})
	root := git.Git("rev-list", "--max-parents=0", tip)
	pack := func(revisions string) []byte {
		return git.Input([]byte(revisions), "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset")
	}
	first, rest := pack(root+"\n"), pack(tip+"\n^"+root+"\n")
	from, err := object.ParseID(root)
	if err != nil {
		b.Fatal(err)
	}
	to, err := object.ParseID(tip)
	if err != nil {
		b.Fatal(err)
	}
	bound := bencher
	if bound.Paths, err = pathpolicy.Parse([][]any{
		{".github/**", []any{"no-write"}}, {"**/*.pem", []any{"no-write"}}, {"{a,b,c}/secret/**", []any{"no-write"}},
	}); err != nil {
		b.Fatal(err)
	}
	host := openHost(b, false)
	n := 0
	push := func(actor engine.Actor) time.Duration {
		n++
		repo := enginetest.Create(b, host, fmt.Sprint("r", n))
		enginetest.Push(b, repo, first, engine.Command{Name: "refs/heads/main", New: from})
		began := time.Now()
		p, err := repo.Receive(context.Background(), actor, engine.PushRequest{
			Commands: []engine.Command{{Name: "refs/heads/main", Old: from, New: to}}, Pack: bytes.NewReader(rest),
		})
		if err != nil {
			b.Fatal(err)
		}
		result, err := p.Finish(context.Background(), nil)
		took := time.Since(began)
		p.Close()
		if err != nil || result.Unpack != nil || result.Commands[0].Err != nil {
			b.Fatal(err, result)
		}
		return took
	}
	var free, under []time.Duration
	for turn := 0; b.Loop(); turn++ { // each first in every other turn
		if turn%2 == 0 {
			free, under = append(free, push(bencher)), append(under, push(bound))
		} else {
			under, free = append(under, push(bound)), append(free, push(bencher))
		}
	}
	slices.Sort(free)
	slices.Sort(under)
	b.ReportMetric(float64(under[len(under)/2])/float64(free[len(free)/2]), "ratio")
}
