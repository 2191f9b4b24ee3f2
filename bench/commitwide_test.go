package bench_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/pack/object"
)

// folderSize is how many files a folder of a [wideRepository] has.
const folderSize = 1000

// BenchmarkCommitWide changes one file of small and of large repositories, each in turn: the cost
// of a commit must not depend on how much else there is.
func BenchmarkCommitWide(b *testing.B) {
	sizes := []int{10, 1000, 100_000, 1_000_000}
	if testing.Short() {
		sizes = []int{10, 2000}
	}
	host := openHostIn(b, b.TempDir(), engine.Config{Background: true})
	repositories := make([]*wideRepository, len(sizes))
	for i, files := range sizes {
		repositories[i] = newWideRepository(b, host, files)
	}
	settle(b, host)
	took := make([][]time.Duration, len(sizes))
	random := rand.New(rand.NewPCG(1, 2))
	for n := 0; b.Loop(); n++ {
		for i, r := range repositories {
			begun := time.Now()
			r.commit(b, fmt.Sprint("content ", n), random.IntN(r.files))
			took[i] = append(took[i], time.Since(begun))
		}
	}
	for i, files := range sizes {
		b.ReportMetric(float64(quantile(took[i], 0.5).Microseconds()), fmt.Sprintf("p50-of-%d-us", files))
	}
}

// wideRepository is a repository of many files.
type wideRepository struct {
	*engine.Repository
	files int
}

func newWideRepository(b *testing.B, host *engine.Host, files int) *wideRepository {
	b.Helper()
	const atOnce = 50_000
	r := &wideRepository{enginetest.Create(b, host, "r"+strconv.Itoa(files)), files}
	all := make([]int, files)
	for i := range all {
		all[i] = i
	}
	for len(all) > 0 {
		n := min(len(all), atOnce)
		r.commit(b, "first", all[:n]...)
		all = all[n:]
	}
	return r
}

// commit gives some files a content.
func (r *wideRepository) commit(b *testing.B, content string, files ...int) {
	b.Helper()
	ctx := context.Background()
	request := engine.UploadRequest{
		Target:     engine.CommitTarget{Branch: "main"},
		Details:    engine.CommitDetails{Message: "change", Author: commit.Person{Name: "B", Email: "b@example.com"}},
		Operations: make([]engine.FileOperation, len(files)),
	}
	for i, n := range files {
		path := fmt.Sprintf("folder%03d/file%03d.go", n/folderSize, n%folderSize)
		request.Operations[i] = engine.FileOperation{Path: path, ContentID: "1", Mode: object.ModeBlob}
	}
	u, err := r.NewUpload(ctx, bencher, request)
	if err != nil {
		b.Fatal(err)
	}
	defer u.Close()
	if err := u.Chunk(ctx, "1", []byte(content), true); err != nil {
		b.Fatal(err)
	}
	if _, err := u.Finish(ctx); err != nil {
		b.Fatal(err)
	}
}
