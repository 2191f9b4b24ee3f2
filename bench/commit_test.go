package bench_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// BenchmarkCommit makes one-file commits to one branch of one repository, each synced to disk
// before the next of its writer begins: on the machine's disk, with every sync delayed by 5 ms, and
// with maintenance in the background, about every 1,700 commits.
func BenchmarkCommit(b *testing.B) {
	for _, delay := range []time.Duration{0, 5 * time.Millisecond} {
		for _, writers := range []int{1, 16} {
			b.Run(fmt.Sprintf("sync+%s/writers=%d", delay, writers), func(b *testing.B) {
				benchmarkCommit(b, slowFS{vfs.Default, delay}, writers, false)
			})
		}
	}
	b.Run("maintained/writers=16", func(b *testing.B) {
		benchmarkCommit(b, vfs.Default, 16, true)
	})
}

func benchmarkCommit(b *testing.B, fs vfs.FS, writers int, maintained bool) {
	b.Helper()
	ctx := context.Background()
	dir := b.TempDir()
	keys, err := kv.OpenPebble(dir+"/keys", kv.PebbleOptions{FS: fs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, keys.Close)
	files, err := file.OpenDir(dir+"/files", file.DirOptions{FS: fs})
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, files.Close)
	host, err := engine.Open(ctx, engine.Config{KV: keys, Files: files, Background: maintained})
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, func() error { return host.Close(ctx) })
	repo := enginetest.Create(b, host, "r")
	var number atomic.Int64
	b.SetParallelism(max(1, writers/2)) // goroutines for each of the cores, of which there are two here
	b.ResetTimer()
	if writers == 1 {
		for b.Loop() {
			writeOne(b, repo, number.Add(1))
		}
	} else {
		writeOne(b, repo, number.Add(1))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				writeOne(b, repo, number.Add(1))
			}
		})
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	if maintained {
		b.ReportMetric(float64(host.MaintenanceStats().Compactions), "compactions")
	}
}

// writeOne commits a file of 100 folders of 100.
func writeOne(b *testing.B, repo *engine.Repository, n int64) {
	b.Helper()
	ctx := context.Background()
	u, err := repo.NewUpload(ctx, engine.Actor{Org: enginetest.Org, Subject: "bench"}, engine.UploadRequest{
		Target:  engine.CommitTarget{Branch: "main"},
		Details: engine.CommitDetails{Message: "one file", Author: commit.Person{Name: "B", Email: "b@example.com"}},
		Operations: []engine.FileOperation{
			{Path: fmt.Sprintf("d%d/f%d", n%100, n/100%100), ContentID: "1", Mode: object.ModeBlob},
		},
	})
	if err != nil {
		b.Error(err)
		return
	}
	defer u.Close()
	if err := u.Chunk(ctx, "1", fmt.Appendf(nil, "content %d\n", n), true); err != nil {
		b.Error(err)
	}
	if _, err := u.Finish(ctx); err != nil {
		b.Error(err)
	}
}

func closeStore(tb testing.TB, closing func() error) {
	tb.Helper()
	if err := closing(); err != nil {
		tb.Error(err)
	}
}

// slowFS makes every sync of a file slower.
type slowFS struct {
	vfs.FS
	delay time.Duration
}

func (s slowFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	return slowFile{f, s.delay}, err
}

func (s slowFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.ReuseForWrite(from, to, category)
	return slowFile{f, s.delay}, err
}

type slowFile struct {
	vfs.File
	delay time.Duration
}

func (f slowFile) Sync() error {
	f.wait()
	return f.File.Sync()
}

func (f slowFile) SyncData() error {
	f.wait()
	return f.File.SyncData()
}

// wait blocks a thread, as a sync does: the runtime's timers may be a whole millisecond late.
func (f slowFile) wait() {
	if f.delay > 0 {
		_, _ = unix.Poll(nil, int(f.delay/time.Millisecond)) // interrupted at worst
	}
}
