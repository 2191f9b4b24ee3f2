package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/odbtest"
	"packhorse/odb/packgen"
)

// TestMaintainedSize makes a history of API commits and compares its size after maintenance with
// git gc --aggressive: at most half as much again, files beside the pack included.
func TestMaintainedSize(t *testing.T) {
	t.Parallel()
	commits, files := 1000, 400
	if testing.Short() {
		commits, files = 300, 100
	}
	const folders, touched = 20, 3
	fs := vfs.NewMem()
	host, shut := enginetest.OpenOn(t, fs, engine.Config{})
	repo := enginetest.Create(t, host, "r")
	random := rand.New(rand.NewPCG(1, 2))
	contents := make([]string, files)
	var first []change
	path := func(i int) string { return fmt.Sprintf("folder%d/file%d.go", i%folders, i) }
	for i := range contents {
		contents[i] = source(random, 40)
		first = append(first, change{path: path(i), content: contents[i]})
	}
	if _, err := upload(repo, acme, main, first...); err != nil {
		t.Fatal(err)
	}
	for n := range commits {
		var changes []change
		seen := map[int]bool{}
		for len(changes) < touched {
			i := random.IntN(files)
			if seen[i] {
				continue
			}
			seen[i] = true
			lines := strings.SplitAfter(contents[i], "\n")
			lines[random.IntN(len(lines)-1)] = source(random, 1)
			contents[i] = strings.Join(lines, "")
			changes = append(changes, change{path: path(i), content: contents[i]})
		}
		if _, err := upload(repo, acme, main, changes...); err != nil {
			t.Fatal(err)
		}
		if n%500 == 499 {
			keep(t, host, engine.MaintainOptions{ReaderGrace: -1})
		}
	}
	keep(t, host, engine.MaintainOptions{All: true, ReaderGrace: -1, RepackOptions: packgen.RepackOptions{Workers: 2}})
	git := fsckWithGit(t, repo)
	git.Git("symbolic-ref", "HEAD", "refs/heads/b0")
	git.Git("gc", "--aggressive", "--prune=now", "-q")
	fsckClean(t, host)
	shut()

	var theirs int64
	for line := range strings.Lines(git.Git("count-objects", "-v")) {
		if kib, ok := strings.CutPrefix(strings.TrimSpace(line), "size-pack: "); ok {
			n, err := strconv.ParseInt(kib, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			theirs = n << 10
		}
	}
	stored := odbtest.OpenFiles(t, fs)
	var ours int64
	for info, err := range stored.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ours += info.Size
	}
	if err := stored.Close(); err != nil {
		t.Fatal(err)
	}
	const most = 1.5
	ratio := float64(ours) / float64(theirs)
	t.Logf("%d commits: %d bytes here, %d with git gc --aggressive: %.2f", commits, ours, theirs, ratio)
	if ratio > most {
		t.Errorf("%d bytes are %.2f times the %d of git gc --aggressive, want at most %.1f", ours, ratio, theirs, most)
	}
}

// source returns lines that compress as program text does.
func source(random *rand.Rand, lines int) string {
	var b bytes.Buffer
	for range lines {
		fmt.Fprintf(&b, "func name%d(argument%d int) error { return fail(%q) }\n", random.IntN(500), random.IntN(9),
			fmt.Sprint(random.Uint32()))
	}
	return b.String()
}
