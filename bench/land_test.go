package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/commit"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// BenchmarkLand lands 100 branches that each change one file of 10,000 in 100 folders: in one
// request, by one merge after the other, and in git merge-tree --stdin, which stores no commits and
// moves no branch. The metric is merges a second; those of the server are synced to disk.
func BenchmarkLand(b *testing.B) {
	const files, branches = 10_000, 100
	git := oracle.New(b)
	var in bytes.Buffer
	in.WriteString("commit refs/heads/main\nmark :1\ncommitter C <c@d> 1 +0000\ndata 0\n")
	for i := range files {
		fmt.Fprintf(&in, "M 644 inline %s\ndata %d\n%s\n", landPath(i), len(landText(i, "")), landText(i, ""))
	}
	for n := range branches {
		text := landText(n, "changed")
		fmt.Fprintf(&in, "commit refs/heads/b%d\ncommitter C <c@d> 2 +0000\ndata 0\nfrom :1\nM 644 inline %s\ndata %d\n%s\n", n,
			landPath(n*97), len(text), text)
	}
	git.Input(in.Bytes(), "fast-import", "--quiet", "--date-format=raw")
	packed := git.Input(nil, "pack-objects", "--quiet", "--revs", "--all", "--stdout", "--delta-base-offset")
	var commands []engine.Command
	for line := range strings.Lines(git.Git("for-each-ref", "--format=%(objectname) %(refname)")) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		parsed, err := object.ParseID(id)
		if err != nil {
			b.Fatal(err)
		}
		commands = append(commands, engine.Command{Name: name, New: parsed})
	}
	person := commit.Person{Name: "B", Email: "b@example.com"}
	actor := engine.Actor{Org: enginetest.Org, Subject: "bench"}
	var sources []engine.LandSource
	var pairs bytes.Buffer
	for n := range branches {
		name := fmt.Sprint("b", n)
		sources = append(sources, engine.LandSource{Source: engine.CommitName{Text: name}})
		fmt.Fprintf(&pairs, "main %s\n", name)
	}
	perSecond := func(b *testing.B, took time.Duration) {
		b.Helper()
		b.ReportMetric(float64(b.N*branches)/took.Seconds(), "merges/s")
	}
	served := func(b *testing.B, merge func(repo *engine.Repository)) {
		b.Helper()
		host, shut := openLand(b)
		defer shut()
		var took time.Duration
		n := 0
		for b.Loop() {
			b.StopTimer()
			n++
			repo := enginetest.Create(b, host, fmt.Sprint("r", n))
			enginetest.Push(b, repo, packed, commands...)
			b.StartTimer()
			began := time.Now()
			merge(repo)
			took += time.Since(began)
		}
		perSecond(b, took)
	}
	b.Run("land", func(b *testing.B) {
		served(b, func(repo *engine.Repository) {
			outcome, err := repo.Land(context.Background(), actor, engine.LandRequest{
				Target: engine.MergeBranch{Name: "main"}, Sources: sources, Author: person,
			})
			if err != nil || outcome.Sources[branches-1].Kind != engine.LandMerged {
				b.Fatal(outcome.Sources, err)
			}
		})
	})
	b.Run("one by one", func(b *testing.B) {
		served(b, func(repo *engine.Repository) {
			for _, source := range sources {
				outcome, err := repo.Merge(context.Background(), actor, engine.MergeRequest{
					Source: source.Source, Target: engine.MergeBranch{Name: "main"}, Strategy: engine.AlwaysMerge,
					Details: engine.CommitDetails{Message: "merge", Author: person},
				})
				if err != nil || outcome.Kind != engine.MergeCommitted {
					b.Fatal(outcome.Kind, err)
				}
			}
		})
	})
	b.Run("git merge-tree", func(b *testing.B) {
		var took time.Duration
		for b.Loop() {
			b.StopTimer()
			objects, err := os.MkdirTemp(b.TempDir(), "")
			if err != nil {
				b.Fatal(err)
			}
			cmd := exec.Command("git", "merge-tree", "--write-tree", "--stdin")
			cmd.Env = append(oracle.Env(git.Dir), "GIT_OBJECT_DIRECTORY="+objects,
				"GIT_ALTERNATE_OBJECT_DIRECTORIES="+git.Dir+"/objects")
			cmd.Stdin = bytes.NewReader(pairs.Bytes())
			b.StartTimer()
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			took += time.Since(began)
		}
		perSecond(b, took)
	})
}

func landPath(i int) string { return fmt.Sprintf("d%03d/f%05d", i%100, i) }

func landText(i int, how string) string { return fmt.Sprintf("file %d\n%s\n", i, how) }

// openLand opens a host whose writes are synced to disk.
func openLand(b *testing.B) (host *engine.Host, shut func()) {
	b.Helper()
	dir := b.TempDir()
	keys, err := kv.OpenPebble(dir+"/keys", kv.PebbleOptions{FS: vfs.Default, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	files, err := file.OpenDir(dir+"/files", file.DirOptions{FS: vfs.Default})
	if err != nil {
		b.Fatal(err)
	}
	host, err = engine.Open(context.Background(), engine.Config{KV: keys, Files: files})
	if err != nil {
		b.Fatal(err)
	}
	return host, func() {
		closeStore(b, func() error { return host.Close(context.Background()) })
		closeStore(b, files.Close)
		closeStore(b, keys.Close)
	}
}
