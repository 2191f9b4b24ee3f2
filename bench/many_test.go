package bench_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/engine"
	"packhorse/engine/enginetest"
)

// manyWriters is how many clients create repositories at once.
const manyWriters = 16

// BenchmarkMany creates repositories and commits a file to each, every one synced. It measures the
// rate, the disk space of each repository when the store is idle, and the time to open the host.
//
// PACKHORSE_MANY_REPOSITORIES is the number of repositories instead of 2,000.
func BenchmarkMany(b *testing.B) {
	count := 2_000
	if testing.Short() {
		count = 200
	}
	if n, err := strconv.Atoi(os.Getenv("PACKHORSE_MANY_REPOSITORIES")); err == nil {
		count = n
	}
	for b.Loop() {
		many(b, count)
	}
}

func many(b *testing.B, count int) {
	b.Helper()
	ctx := context.Background()
	dir := b.TempDir()
	stores := openStores(b, dir)
	host, err := engine.Open(ctx, engine.Config{KV: stores.keys, Files: stores.files, Background: true})
	if err != nil {
		b.Fatal(err)
	}
	measure := func(unit string, do func(i int)) {
		begun, used := time.Now(), usedCPU(b)
		eachOf(count, do)
		b.ReportMetric(float64(count)/time.Since(begun).Seconds(), unit+"/s")
		b.ReportMetric(float64((usedCPU(b)-used).Microseconds())/float64(count), unit+"-cpu-us")
	}
	repos := make([]*engine.Repository, count)
	measure("created", func(i int) { repos[i] = enginetest.Create(b, host, fmt.Sprintf("repository-%06d", i)) })
	measure("committed", func(i int) { writeOne(b, repos[i], int64(i)) })
	closeStore(b, func() error { return host.Close(ctx) })
	stores.close(b)

	begun := time.Now()
	stores = openStores(b, dir)
	if host, err = engine.Open(ctx, engine.Config{KV: stores.keys, Files: stores.files, Background: true}); err != nil {
		b.Fatal(err)
	}
	repo, err := host.Repository(ctx, enginetest.Org, fmt.Sprintf("repository-%06d", count-1))
	if err != nil {
		b.Fatal(err)
	}
	if page, err := repo.Commits(ctx, engine.CommitsRequest{Limit: 1}); err != nil || len(page.Items) != 1 {
		b.Fatal(len(page.Items), err)
	}
	b.ReportMetric(time.Since(begun).Seconds(), "open-s")
	b.ReportMetric(float64(sizeOf(b, dir))/float64(count), "bytes/repository")
	closeStore(b, func() error { return host.Close(ctx) })
	stores.close(b)
}

// eachOf calls do with 0 to count-1, manyWriters at a time.
func eachOf(count int, do func(i int)) {
	var next atomic.Int64
	var writers sync.WaitGroup
	for range manyWriters {
		writers.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	writers.Wait()
}
