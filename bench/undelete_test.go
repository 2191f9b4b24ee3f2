package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// BenchmarkUndelete deletes a repository of a million objects and brings it back, and reads a file
// of it. The metrics are medians: "delete-ms", "undelete-ms", and "read-ms" for that first read.
// What it takes must not depend on the number of objects.
//
// PACKHORSE_UNDELETE_OBJECTS is another number of objects.
func BenchmarkUndelete(b *testing.B) {
	count := 1_000_000
	if testing.Short() {
		count = 10_000
	}
	if n, err := strconv.Atoi(os.Getenv("PACKHORSE_UNDELETE_OBJECTS")); err == nil {
		count = n
	}
	ctx := context.Background()
	host := openHost(b, false)
	repo := enginetest.Create(b, host, "r")
	tip, packed := manyObjects(b, count)
	enginetest.Push(b, repo, packed, engine.Command{Name: "refs/heads/main", New: tip})
	settle(b, host)
	took := make(steps)
	for b.Loop() {
		took.time(b, "delete", func() error {
			_, err := host.DeleteRepository(ctx, bencher, "r")
			return err
		})
		took.time(b, "undelete", func() error {
			_, err := host.Undelete(ctx, bencher, engine.UndeleteRequest{Name: "r"})
			return err
		})
		took.time(b, "read", func() error {
			repo, err := host.Repository(ctx, bencher.Org, "r")
			if err != nil {
				return err
			}
			f, err := repo.File(ctx, engine.FileRequest{Path: "d000/f000"})
			if err != nil {
				return err
			}
			return f.Close()
		})
	}
	for step, all := range took {
		b.ReportMetric(float64(quantile(all, 0.5).Microseconds())/1000, step+"-ms")
	}
	b.ReportMetric(float64(count), "objects")
}

// manyObjects is a pack of about count objects, most of them files in folders of a thousand, and
// the commit that holds them all.
func manyObjects(b *testing.B, count int) (tip object.ID, packed []byte) {
	b.Helper()
	git := oracle.New(b)
	var in bytes.Buffer
	in.WriteString("commit refs/heads/main\ncommitter C <c@d> 1 +0000\ndata 0\n")
	for i := range count - count/1000 {
		text := fmt.Sprint("file ", i)
		fmt.Fprintf(&in, "M 644 inline d%03d/f%03d\ndata %d\n%s\n", i/1000, i%1000, len(text), text)
	}
	git.Input(in.Bytes(), "fast-import", "--quiet", "--date-format=raw", "--depth=0")
	tip, err := object.ParseID(git.Git("rev-parse", "main"))
	if err != nil {
		b.Fatal(err)
	}
	return tip, git.Input([]byte("main\n"), "pack-objects", "--quiet", "--revs", "--stdout", "--window=0")
}
