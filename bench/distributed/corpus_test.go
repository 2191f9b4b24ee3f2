package distributed_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"packhorse/fuzz/oracle"
)

// history is what is pushed in one piece.
type history struct {
	tip  string
	pack []byte
}

// openHistory returns the history of the bare repository in PACKHORSE_REAL_REPO, or a made-up one,
// and commits on top of it.
func openHistory(tb testing.TB, chainCount int) (history, []history) {
	tb.Helper()
	git := oracle.New(tb)
	if dir := os.Getenv("PACKHORSE_REAL_REPO"); dir != "" {
		git.Git("fetch", "--quiet", dir, "HEAD:refs/heads/main")
	} else {
		git.Seed(oracle.History{Seed: 1, Commits: 3_000, Files: 400, Merges: true, Binary: true})
	}
	tip := git.Git("rev-parse", "main")
	whole := history{tip, git.Input([]byte(tip+"\n"), "pack-objects", "-q", "--revs", "--stdout", "--delta-base-offset")}
	var stream bytes.Buffer
	for i := range chainCount {
		fmt.Fprintf(&stream, "commit refs/heads/chain\ncommitter Bench <bench@example.com> %d +0000\ndata 5\nchain", 1_900_000_000+i)
		if i == 0 {
			fmt.Fprintf(&stream, "\nfrom %s", tip)
		}
		fmt.Fprintf(&stream, "\nM 100644 inline bench/dir%02d/file%04d.txt\ndata 5\n%05d\n", i%40, i%400, i)
	}
	git.Input(stream.Bytes(), "fast-import", "--quiet")
	chain := make([]history, 0, chainCount)
	before := tip
	for after := range strings.FieldsSeq(git.Git("rev-list", "--reverse", tip+"..chain")) {
		pack := git.Input([]byte(after+"\n^"+before+"\n"), "pack-objects", "-q", "--revs", "--thin", "--stdout", "--delta-base-offset")
		chain = append(chain, history{after, pack})
		before = after
	}
	return whole, chain
}

// Shape of a large history: files that do not become smaller.
const (
	largeCommits = 60
	largeFiles   = 200 // a commit
	largeBytes   = 10_000
)

// newLarge makes a history of some 120 MB. Each seed is another one.
func newLarge(tb testing.TB, seed uint64) history {
	tb.Helper()
	git := oracle.New(tb)
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	var stream bytes.Buffer
	content := make([]byte, largeBytes)
	for c := range largeCommits {
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter Bench <bench@example.com> %d +0000\ndata 5\nlarge\n", 1_700_000_000+c)
		for f := range largeFiles {
			_, _ = random.Read(content) // never fails
			fmt.Fprintf(&stream, "M 100644 inline dir%03d/file%03d\ndata %d\n%s\n", c, f, len(content), content)
		}
	}
	git.Git("config", "core.compression", "0")
	git.Input(stream.Bytes(), "fast-import", "--quiet")
	tip := git.Git("rev-parse", "main")
	return history{tip, git.Input([]byte(tip+"\n"), "pack-objects", "-q", "--revs", "--stdout", "--delta-base-offset", "--window=0")}
}
