package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/packgen"
	"packhorse/pack/object"
)

// BenchmarkSteady commits three files at a time to one repository of 10,000 files while maintenance
// runs in the background. It compares the time of the last commits with that of the first, and
// reports the stored size at the end, before and after `packhorse gc`.
//
// PACKHORSE_STEADY_COMMITS and PACKHORSE_STEADY_FILES change these numbers. PACKHORSE_STEADY_GIT
// names a folder for a clone, whose size after git gc --aggressive is compared.
func BenchmarkSteady(b *testing.B) {
	commits, files := 5000, 10_000
	if testing.Short() {
		commits, files = 300, 200
	}
	if n, err := strconv.Atoi(os.Getenv("PACKHORSE_STEADY_COMMITS")); err == nil {
		commits = n
	}
	if n, err := strconv.Atoi(os.Getenv("PACKHORSE_STEADY_FILES")); err == nil {
		files = n
	}
	for b.Loop() {
		steady(b, commits, files)
	}
}

func steady(b *testing.B, commits, files int) {
	b.Helper()
	dir := b.TempDir()
	host := openHostIn(b, dir, engine.Config{Background: true})
	repo := enginetest.Create(b, host, "r")
	w := newSteadyWriter(files)
	w.commitAll(b, repo)
	took := make([]time.Duration, commits)
	begun := time.Now()
	for n := range took {
		took[n] = w.change(b, repo)
	}
	b.ReportMetric(float64(commits)/time.Since(begun).Seconds(), "commits/s")
	part := max(1, min(1000, commits/5))
	first, last := took[:part], took[commits-part:]
	for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
		b.ReportMetric(float64(quantile(first, q).Microseconds()), name+"-first-us")
		b.ReportMetric(float64(quantile(last, q).Microseconds()), name+"-last-us")
	}
	b.ReportMetric(float64(host.MaintenanceStats().Compactions), "compactions")
	maintain(b, host, engine.MaintainOptions{ReaderGrace: -1}) // the remaining background work
	ours := sizeOf(b, filepath.Join(dir, "files"))
	b.ReportMetric(float64(ours), "background-bytes")
	maintain(b, host, engine.MaintainOptions{ReaderGrace: -1, All: true, RepackOptions: packgen.RepackOptions{Workers: 2}})
	b.ReportMetric(float64(sizeOf(b, filepath.Join(dir, "files"))), "gc-bytes")
	if to := os.Getenv("PACKHORSE_STEADY_GIT"); to != "" {
		theirs := aggressive(b, repo, w.tip, to)
		b.ReportMetric(float64(theirs), "git-bytes")
		b.ReportMetric(float64(ours)/float64(theirs), "background/git")
	}
}

// steadyWriter makes a history in which each commit changes a line of three files.
type steadyWriter struct {
	random   *rand.Rand
	contents []string
	tip      object.ID
}

func newSteadyWriter(files int) *steadyWriter {
	w := &steadyWriter{random: rand.New(rand.NewPCG(1, 2)), contents: make([]string, files)}
	for i := range w.contents {
		w.contents[i] = w.lines(40)
	}
	return w
}

// lines returns lines that compress as program text does.
func (w *steadyWriter) lines(count int) string {
	var text strings.Builder
	for range count {
		fmt.Fprintf(&text, "func name%d(argument%d int) error { return fail(\"%d\") }\n", w.random.IntN(500),
			w.random.IntN(9), w.random.Uint32())
	}
	return text.String()
}

// commitAll commits every file unchanged.
func (w *steadyWriter) commitAll(b *testing.B, repo *engine.Repository) {
	b.Helper()
	all := make([]int, len(w.contents))
	for i := range all {
		all[i] = i
	}
	w.commit(b, repo, all)
}

// change commits a new line in each of three files, and returns how long the commit took.
func (w *steadyWriter) change(b *testing.B, repo *engine.Repository) time.Duration {
	b.Helper()
	var touched []int
	for len(touched) < 3 {
		i := w.random.IntN(len(w.contents))
		if slices.Contains(touched, i) {
			continue
		}
		lines := strings.SplitAfter(w.contents[i], "\n")
		lines[w.random.IntN(len(lines)-1)] = w.lines(1)
		w.contents[i] = strings.Join(lines, "")
		touched = append(touched, i)
	}
	begun := time.Now()
	w.commit(b, repo, touched)
	return time.Since(begun)
}

// commit commits some of the files as they are. There are as many folders as there are files in
// each.
func (w *steadyWriter) commit(b *testing.B, repo *engine.Repository, touched []int) {
	b.Helper()
	ctx := context.Background()
	request := engine.UploadRequest{
		Target:  engine.CommitTarget{Branch: "main"},
		Details: engine.CommitDetails{Message: "change", Author: commit.Person{Name: "B", Email: "b@example.com"}},
	}
	folders := int(math.Sqrt(float64(len(w.contents))))
	for _, i := range touched {
		request.Operations = append(request.Operations, engine.FileOperation{
			Path: fmt.Sprintf("folder%d/file%d.go", i%folders, i), ContentID: strconv.Itoa(i), Mode: object.ModeBlob,
		})
	}
	u, err := repo.NewUpload(ctx, bencher, request)
	if err != nil {
		b.Fatal(err)
	}
	defer u.Close()
	for _, i := range touched {
		if err := u.Chunk(ctx, strconv.Itoa(i), []byte(w.contents[i]), true); err != nil {
			b.Fatal(err)
		}
	}
	done, err := u.Finish(ctx)
	if err != nil {
		b.Fatal(err)
	}
	w.tip = done.New
}

// steps is how long each step of a benchmark took, every time.
type steps map[string][]time.Duration

// time runs a step.
func (s steps) time(b *testing.B, step string, do func() error) {
	b.Helper()
	begun := time.Now()
	if err := do(); err != nil {
		b.Fatal(step, err)
	}
	s[step] = append(s[step], time.Since(begun))
}

func quantile(took []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[int(q*float64(len(sorted)-1))]
}

// maintain maintains everything and returns how many objects were rewritten.
func maintain(b *testing.B, host *engine.Host, options engine.MaintainOptions) (objects int64) {
	b.Helper()
	for done, err := range host.Maintain(context.Background(), options) {
		if err != nil || done.Err != nil {
			b.Fatal(err, done.Err)
		}
		objects += int64(done.Compacted.ObjectCount)
	}
	return objects
}

// sizeOf adds up the files in a folder.
func sizeOf(b *testing.B, dir string) (size int64) {
	b.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return size
}

// aggressive clones a repository into a folder and returns the size of packs and indexes that git
// gc --aggressive leaves there.
func aggressive(b *testing.B, repo *engine.Repository, tip object.ID, dir string) int64 {
	b.Helper()
	var pack bytes.Buffer
	fetch(b, repo, engine.FetchRequest{Wants: []object.ID{tip}, OFSDelta: true}, &pack)
	git := oracle.NewAt(b, dir)
	git.Input(pack.Bytes(), "index-pack", "--stdin", "--strict")
	git.Git("update-ref", "HEAD", tip.String())
	git.Git("gc", "--aggressive", "--prune=now", "-q")
	for line := range strings.Lines(git.Git("count-objects", "-v")) {
		if kib, ok := strings.CutPrefix(strings.TrimSpace(line), "size-pack: "); ok {
			n, err := strconv.ParseInt(kib, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n << 10
		}
	}
	b.Fatal("git count-objects tells no size")
	return 0
}
