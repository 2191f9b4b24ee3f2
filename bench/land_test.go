package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
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

// BenchmarkLand lands 100 branches, or PACKHORSE_LAND_BRANCHES, that each change one file of 10,000
// in 100 folders: in one request, by one merge after the other, and in git merge-tree --stdin,
// which makes the same merges but stores no commits and moves no branch. The metric is merges a
// second; those of the server are synced to disk.
func BenchmarkLand(b *testing.B) {
	const files = 10_000
	branches := 100
	if n, err := strconv.Atoi(os.Getenv("PACKHORSE_LAND_BRANCHES")); err == nil {
		branches = n
	}
	l := &landing{git: oracle.New(b)}
	var in bytes.Buffer
	in.WriteString("commit refs/heads/main\nmark :1\ncommitter C <c@d> 1 +0000\ndata 0\n")
	for i := range files {
		fmt.Fprintf(&in, "M 644 inline %s\ndata %d\n%s\n", landPath(i), len(landText(i, "")), landText(i, ""))
	}
	for n := range branches {
		text := landText(n, "changed")
		fmt.Fprintf(&in, "commit refs/heads/b%d\ncommitter C <c@d> 2 +0000\ndata 0\nfrom :1\nM 644 inline %s\ndata %d\n%s\n", n,
			landPath(n*97%files), len(text), text)
		l.sources = append(l.sources, fmt.Sprint("b", n))
	}
	l.git.Input(in.Bytes(), "fast-import", "--quiet", "--date-format=raw")
	l.target = l.git.Git("rev-parse", "main")
	l.run(b)
}

// BenchmarkLandReal lands what the newest 200 merges of the repository in PACKHORSE_REAL_REPO have
// merged, on the first parent of the oldest of them. Each brings the commits between it and the one
// before, so a merge is larger than it was, and some conflict. Git makes the same merges.
func BenchmarkLandReal(b *testing.B) {
	history := oracle.Real(b)
	l := &landing{git: oracle.New(b)}
	if err := os.WriteFile(l.git.Dir+"/objects/info/alternates", []byte(history.Dir+"/objects\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	lines := strings.Split(history.Git("rev-list", "--first-parent", "--merges", "--parents", "-n", "200", "HEAD"), "\n")
	for _, line := range slices.Backward(lines) {
		ids := strings.Fields(line)
		if l.target == "" {
			l.target = ids[1]
		}
		l.sources = append(l.sources, ids[2])
	}
	l.run(b)
}

// landing is the names of commits of a repository that are landed on a target, a commit.
type landing struct {
	git     *oracle.Repository
	target  string
	sources []string
}

// pairs returns what git merge-tree --stdin is to merge: each source with what those before it came
// to. It makes the merges once, in git.
func (l *landing) pairs(b *testing.B) string {
	b.Helper()
	var pairs strings.Builder
	tip := l.target
	for _, source := range l.sources {
		fmt.Fprintf(&pairs, "%s %s\n", tip, source)
		out, err := l.git.Try(nil, "merge-tree", "--write-tree", tip, source)
		if err == nil {
			tip = l.git.Git("commit-tree", strings.TrimSpace(string(out)), "-p", tip, "-p", source, "-m", "merge")
		} else if exit, ok := errors.AsType[*oracle.ExitError](err); !ok || exit.Code != 1 { // 1 is a conflict
			b.Fatal(err)
		}
	}
	return pairs.String()
}

func (l *landing) run(b *testing.B) {
	b.Helper()
	commands := []engine.Command{{Name: "refs/heads/main", New: l.resolve(b, l.target)}}
	var sources []engine.LandSource
	var tips bytes.Buffer
	for i, source := range l.sources {
		name := fmt.Sprint("source", i)
		commands = append(commands, engine.Command{Name: "refs/heads/" + name, New: l.resolve(b, source)})
		sources = append(sources, engine.LandSource{Source: engine.CommitName{Text: name}})
	}
	for _, command := range commands {
		fmt.Fprintln(&tips, command.New)
	}
	packed := l.git.Input(tips.Bytes(), "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset")
	person := commit.Person{Name: "B", Email: "b@example.com"}
	actor := engine.Actor{Org: enginetest.Org, Subject: "bench"}
	perSecond := func(b *testing.B, took time.Duration) {
		b.Helper()
		b.ReportMetric(float64(b.N*len(l.sources))/took.Seconds(), "merges/s")
	}
	served := func(b *testing.B, merge func(repo *engine.Repository) (conflicts int)) {
		b.Helper()
		host, shut := openLand(b)
		defer shut()
		var took time.Duration
		n, conflicts := 0, 0
		for b.Loop() {
			b.StopTimer()
			n++
			repo := enginetest.Create(b, host, fmt.Sprint("r", n))
			enginetest.Push(b, repo, packed, commands...)
			b.StartTimer()
			began := time.Now()
			conflicts = merge(repo)
			took += time.Since(began)
		}
		perSecond(b, took)
		b.ReportMetric(float64(conflicts), "conflicts")
	}
	b.Run("land", func(b *testing.B) {
		served(b, func(repo *engine.Repository) (conflicts int) {
			outcome, err := repo.Land(context.Background(), actor, engine.LandRequest{
				Target: engine.MergeBranch{Name: "main"}, Sources: sources, Author: person,
			})
			if err != nil {
				b.Fatal(err)
			}
			for i := range outcome.Sources {
				if outcome.Sources[i].Kind == engine.LandConflicted {
					conflicts++
				}
			}
			return conflicts
		})
	})
	b.Run("one by one", func(b *testing.B) {
		served(b, func(repo *engine.Repository) (conflicts int) {
			for _, source := range sources {
				outcome, err := repo.Merge(context.Background(), actor, engine.MergeRequest{
					Source: source.Source, Target: engine.MergeBranch{Name: "main"}, Strategy: engine.AlwaysMerge,
					Details: engine.CommitDetails{Message: "merge", Author: person},
				})
				if err != nil {
					b.Fatal(err)
				}
				if outcome.Kind == engine.MergeConflicted {
					conflicts++
				}
			}
			return conflicts
		})
	})
	b.Run("git merge-tree", func(b *testing.B) {
		pairs := l.pairs(b)
		var took time.Duration
		for b.Loop() {
			b.StopTimer()
			objects, err := os.MkdirTemp(b.TempDir(), "")
			if err != nil {
				b.Fatal(err)
			}
			cmd := exec.Command("git", "merge-tree", "--write-tree", "--stdin")
			cmd.Env = append(oracle.Env(l.git.Dir), "GIT_OBJECT_DIRECTORY="+objects,
				"GIT_ALTERNATE_OBJECT_DIRECTORIES="+l.git.Dir+"/objects")
			cmd.Stdin = strings.NewReader(pairs)
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

func (l *landing) resolve(b *testing.B, name string) object.ID {
	b.Helper()
	id, err := object.ParseID(l.git.Git("rev-parse", name))
	if err != nil {
		b.Fatal(err)
	}
	return id
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
