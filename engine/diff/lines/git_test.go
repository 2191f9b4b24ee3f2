package lines_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"packhorse/engine/diff/lines"
	"packhorse/fuzz/oracle"
)

// pair is two contents to compare.
type pair struct{ old, new []byte }

// ways are the options and the arguments of git diff-tree that mean the same.
var ways = map[string]struct {
	options lines.Options
	around  int
	args    []string
}{
	"default":             {around: 3},
	"no indent heuristic": {options: lines.Options{NoIndent: true}, around: 3, args: []string{"--no-indent-heuristic"}},
	"no context":          {options: lines.Options{NoContext: true}, args: []string{"-U0"}},
	"much context":        {around: 10, args: []string{"-U10"}},
	"as merges": {
		options: lines.Options{NoIndent: true, Histogram: true},
		around:  3,
		args:    []string{"--no-indent-heuristic", "--histogram"},
	},
	"histogram": {options: lines.Options{Histogram: true}, around: 3, args: []string{"--histogram"}},
}

// TestDiffAgainstGit compares generated contents of many shapes as git diff does.
func TestDiffAgainstGit(t *testing.T) {
	t.Parallel()
	count := oracle.CaseCount(t, 1500, 300)
	random := rand.New(rand.NewPCG(uint64(count), 7))
	pairs := make([]pair, count)
	for i := range pairs {
		pairs[i] = newPair(random)
	}
	r := oracle.New(t)
	storePairs(r, pairs)
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := gitHunks(r, []byte(r.Git("rev-parse", "main")+"\n"), way.args...)
			for i, p := range pairs {
				checkHunks(t, p, way.options, way.around, want[fmt.Sprintf("a/%06d", i)].hunks)
			}
		})
	}
}

// storePairs makes a history of two commits in which file i has the contents of pair i.
func storePairs(r *oracle.Repository, pairs []pair) {
	var stream bytes.Buffer
	for mark, content := range []func(p pair) []byte{
		func(p pair) []byte { return p.old }, func(p pair) []byte { return p.new },
	} {
		fmt.Fprintf(&stream, "commit refs/heads/main\nmark :%d\ncommitter C <c@d> %d +0000\ndata 0\n", mark+1,
			1_700_000_000+mark)
		if mark > 0 {
			fmt.Fprintf(&stream, "from :%d\n", mark)
		}
		for i, p := range pairs {
			fmt.Fprintf(&stream, "M 100644 inline %06d\ndata %d\n%s\n", i, len(content(p)), content(p))
		}
	}
	stream.WriteString("done\n")
	r.Input(stream.Bytes(), "fast-import", "--quiet", "--done")
}

// filePatch is the output of git for one file.
type filePatch struct {
	oldID, newID string
	hunks        []byte
}

// gitHunks returns the output of git diff-tree for each modified file of the commits on stdin, by
// its name as printed.
func gitHunks(r *oracle.Repository, commits []byte, args ...string) map[string]filePatch {
	args = append(
		[]string{"diff-tree", "--stdin", "-r", "-p", "--no-renames", "--text", "--full-index", "--diff-filter=M"}, args...,
	)
	out := r.Input(commits, args...)
	all := map[string]filePatch{}
	several := bytes.Count(commits, []byte("\n")) > 1
	var commit, name string
	for line := range bytes.Lines(out) {
		f := all[commit+name]
		switch {
		case bytes.HasPrefix(line, []byte("diff --git ")):
			name = strings.Fields(string(line))[2]
			continue
		case several && len(line) == 41 && bytes.Trim(line, "0123456789abcdef")[0] == '\n':
			commit = string(line[:40]) + " "
			continue
		case bytes.HasPrefix(line, []byte("index ")):
			f.oldID, f.newID, _ = strings.Cut(strings.Fields(string(line))[1], "..")
		case f.hunks == nil && line[0] != '@':
			continue
		default:
			f.hunks = append(f.hunks, line...)
		}
		all[commit+name] = f
	}
	return all
}

func checkHunks(t *testing.T, p pair, o lines.Options, around int, want []byte) {
	t.Helper()
	old, fresh := lines.Split(p.old), lines.Split(p.new)
	changes, err := lines.Diff(t.Context(), old, fresh, o)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := lines.WriteHunks(t.Context(), &got, old, fresh, changes, around); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("other hunks than git's.\nold: %.2000q\nnew: %.2000q\ngot:\n%.3000s\nwant:\n%.3000s", p.old, p.new,
			got.Bytes(), want)
	}
}

// newPair makes a content and a changed one. The kinds of lines, how many there are and how they
// are changed vary.
func newPair(random *rand.Rand) pair {
	kinds := []int{2, 3, 6, 20, 100, 5000}[random.IntN(6)]
	size := []int{0, 3, 10, 40, 150, 600, 3000}[random.IntN(7)]
	line := func() string {
		indent := strings.Repeat([]string{" ", "\t", "    "}[random.IntN(3)], random.IntN(4))
		n := random.IntN(kinds)
		switch {
		case n == 0:
			return strings.Repeat(" ", random.IntN(2)*random.IntN(3)) + []string{"\n", "\r\n"}[random.IntN(8)/7]
		case n == 1:
			return indent + "}\n"
		case n%7 == 2:
			return fmt.Sprintf("func %s%d() {\n", strings.Repeat("lang ü\xff"[:5+n%4], n%20), n)
		}
		return fmt.Sprintf("%sline %d\n", indent[:min(len(indent), n%3)], n)
	}
	run := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = line()
		}
		return all
	}
	old := run(random.IntN(size + 1))
	fresh := append([]string(nil), old...)
	edits := []int{1, 3, 10, 60, 400}[random.IntN(5)]
	for range 1 + random.IntN(edits) {
		at := random.IntN(len(fresh) + 1)
		gone := min(random.IntN(1+random.IntN(12)), len(fresh)-at)
		var added []string
		switch random.IntN(4) {
		case 0: // a copy of existing lines
			from := random.IntN(len(fresh) + 1)
			added = append(added, fresh[from:min(from+random.IntN(30), len(fresh))]...)
		case 1: // another order
			gone = min(random.IntN(20), len(fresh)-at)
			added = append(added, fresh[at:at+gone]...)
			random.Shuffle(len(added), func(i, j int) { added[i], added[j] = added[j], added[i] })
		default:
			added = run(random.IntN(1 + random.IntN(12)))
		}
		fresh = append(fresh[:at:at], append(added, fresh[at+gone:]...)...)
	}
	p := pair{[]byte(strings.Join(old, "")), []byte(strings.Join(fresh, ""))}
	if random.IntN(4) == 0 {
		p.old = bytes.TrimSuffix(p.old, []byte("\n"))
	}
	if random.IntN(4) == 0 {
		p.new = bytes.TrimSuffix(p.new, []byte("\n"))
	}
	return p
}

// TestDiffOfRealRepository repeats the comparison on every modified file of a real history, or of
// the last PACKHORSE_REAL_COUNT commits.
func TestDiffOfRealRepository(t *testing.T) {
	t.Parallel()
	r := oracle.Real(t)
	count := oracle.RealCount(t, 1<<30)
	commits := strings.SplitAfter(
		r.Git("rev-list", "--no-merges", "--branches", "--tags", fmt.Sprint("--max-count=", count)), "\n",
	)
	files, failed := 0, 0
	for len(commits) > 0 {
		n := min(len(commits), 100)
		patches := gitHunks(r, []byte(strings.Join(commits[:n], "")))
		commits = commits[n:]
		blobs := readBlobs(r, patches)
		for name, f := range patches {
			if f.hunks == nil || blobs[f.oldID] == nil && blobs[f.newID] == nil {
				continue // a change of the mode, or a submodule
			}
			files++
			p := pair{blobs[f.oldID], blobs[f.newID]}
			if !t.Run(strings.ReplaceAll(name, "/", "."), func(t *testing.T) { checkHunks(t, p, lines.Options{}, 3, f.hunks) }) {
				failed++
			}
		}
	}
	t.Logf("%d files compared, %d differ", files, failed)
}

func readBlobs(r *oracle.Repository, patches map[string]filePatch) map[string][]byte {
	var names bytes.Buffer
	for _, f := range patches {
		fmt.Fprintf(&names, "%s\n%s\n", f.oldID, f.newID)
	}
	out := r.Input(names.Bytes(), "cat-file", "--batch")
	blobs := map[string][]byte{}
	for len(out) > 0 {
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		out = rest
		fields := strings.Fields(string(line))
		if len(fields) != 3 {
			continue // missing
		}
		size, err := strconv.Atoi(fields[2])
		if err != nil {
			panic(err)
		}
		blobs[fields[0]] = rest[:size:size]
		out = rest[size+1:]
	}
	return blobs
}
