package odbtest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// HistoryOptions shape a made-up history.
type HistoryOptions struct {
	Seed        uint64
	CommitCount int
	// Skew is how far clocks run backwards at times, in seconds.
	Skew int64
}

// NewHistory returns a repository with a random history: branches, merges of two and more,
// criss-cross merges, unrelated roots, moved files and folders, submodules, empty trees, trees that
// come back, and tags of commits, tags, trees and blobs.
func NewHistory(tb testing.TB, options HistoryOptions) *Repository {
	tb.Helper()
	g := NewRepository(tb)
	d := drawing{rand: rand.New(rand.NewPCG(options.Seed, 1)), options: options}
	d.write()
	g.Input(d.out.Bytes(), "fast-import", "--quiet", "--force")
	d.tag(g)
	return g
}

// drawing makes up a stream for git fast-import.
type drawing struct {
	rand    *rand.Rand
	options HistoryOptions
	out     bytes.Buffer
	files   []map[string]string // of each commit: path to content
	old     []string            // contents that were there once
}

func (d *drawing) write() {
	now := int64(1_500_000_000)
	for n := range d.options.CommitCount {
		now += d.rand.Int64N(200)
		date := now
		if d.options.Skew > 0 && d.rand.IntN(4) == 0 {
			date -= d.rand.Int64N(d.options.Skew)
		}
		d.commit(n, date)
	}
	for n := range d.options.CommitCount {
		if n >= d.options.CommitCount-4 || d.rand.IntN(10) == 0 {
			fmt.Fprintf(&d.out, "reset refs/heads/b%d\nfrom :%d\n\n", n, n+1)
		}
	}
}

func (d *drawing) commit(n int, date int64) {
	parents := d.parents(n)
	if len(parents) == 0 {
		fmt.Fprintf(&d.out, "reset refs/heads/main\n\n")
	}
	fmt.Fprintf(&d.out, "commit refs/heads/main\nmark :%d\n", n+1)
	fmt.Fprintf(&d.out, "author A <a@example.com> %d +0100\ncommitter C <c@example.com> %d -0330\n", date, date)
	message := fmt.Sprintf("commit %d\n", n)
	fmt.Fprintf(&d.out, "data %d\n%s", len(message), message)
	files := map[string]string{}
	for i, p := range parents {
		if i == 0 {
			fmt.Fprintf(&d.out, "from :%d\n", p+1)
			files = maps.Clone(d.files[p])
			continue
		}
		fmt.Fprintf(&d.out, "merge :%d\n", p+1)
	}
	for range 1 + d.rand.IntN(4) {
		d.change(files)
	}
	d.files = append(d.files, files)
	fmt.Fprintf(&d.out, "\n")
}

// parents draws the parents of commit n: mostly recent ones, none at times, up to four.
func (d *drawing) parents(n int) []int {
	if n == 0 || d.rand.IntN(80) == 0 {
		return nil
	}
	count := 1
	switch d.rand.IntN(12) {
	case 0, 1, 2:
		count = 2
	case 3:
		count = 3 + d.rand.IntN(2)
	}
	var parents []int
	for range count {
		p := n - 1 - d.rand.IntN(min(n, 8))
		if !slices.Contains(parents, p) {
			parents = append(parents, p)
		}
	}
	return parents
}

// change draws one change of the files of a commit.
func (d *drawing) change(files map[string]string) {
	paths := slices.Sorted(maps.Keys(files))
	if len(paths) == 0 {
		d.set(files, d.path(), d.content(""))
		return
	}
	path := paths[d.rand.IntN(len(paths))]
	switch d.rand.IntN(20) {
	case 0:
		fmt.Fprintf(&d.out, "D %s\n", path)
		delete(files, path)
	case 1: // a file or the folder that it is in moves
		from := path
		if folder, _, ok := strings.Cut(path, "/"); ok && d.rand.IntN(2) == 0 {
			from = folder
		}
		d.move(files, from, d.path())
	case 2:
		const submodule = "0123456789012345678901234567890123456789"
		fmt.Fprintf(&d.out, "M 160000 %s module\n", submodule)
	case 3: // something old comes back
		if len(d.old) > 0 {
			d.set(files, path, d.old[d.rand.IntN(len(d.old))])
		}
	case 4:
		if d.rand.IntN(4) == 0 {
			fmt.Fprintf(&d.out, "deleteall\n")
			clear(files)
		}
	case 5, 6, 7:
		d.set(files, d.path(), d.content(""))
	default:
		d.set(files, path, d.content(files[path]))
	}
}

func (d *drawing) path() string {
	names := []string{"a", "b", "c", "lib", "src"}
	var parts []string
	for range d.rand.IntN(4) {
		parts = append(parts, names[d.rand.IntN(len(names))]+".d")
	}
	return strings.Join(append(parts, names[d.rand.IntN(len(names))]), "/")
}

// content draws a new version of a file.
func (d *drawing) content(old string) string {
	lines := strings.SplitAfter(old, "\n")
	for range 1 + d.rand.IntN(3) {
		line := fmt.Sprintf("line %x of a file with some words in it\n", d.rand.Uint64())
		lines = slices.Insert(lines, d.rand.IntN(len(lines)+1), line)
	}
	if old == "" && d.rand.IntN(3) == 0 {
		for range 60 {
			lines = append(lines, fmt.Sprintf("longer file %x\n", d.rand.Uint64()))
		}
	}
	return strings.Join(lines, "")
}

func (d *drawing) set(files map[string]string, path, content string) {
	mode := []string{"100644", "100644", "100755"}[d.rand.IntN(3)]
	fmt.Fprintf(&d.out, "M %s inline %s\ndata %d\n%s\n", mode, path, len(content), content)
	clearWay(files, path)
	files[path] = content
	d.old = append(d.old, content)
}

func (d *drawing) move(files map[string]string, from, to string) {
	if strings.HasPrefix(to+"/", from+"/") || strings.HasPrefix(from+"/", to+"/") {
		return
	}
	fmt.Fprintf(&d.out, "R %s %s\n", from, to)
	moved := map[string]string{}
	for path, content := range files {
		if rest, ok := strings.CutPrefix(path+"/", from+"/"); ok {
			moved[strings.TrimSuffix(to+"/"+rest, "/")] = content
			delete(files, path)
		}
	}
	clearWay(files, to)
	maps.Copy(files, moved)
}

// clearWay removes what cannot be beside a file or folder at path.
func clearWay(files map[string]string, path string) {
	for other := range files {
		if strings.HasPrefix(other+"/", path+"/") || strings.HasPrefix(path+"/", other+"/") {
			delete(files, other)
		}
	}
}

// tag adds tags of commits, of tags, of a tree and of a blob.
func (d *drawing) tag(g *Repository) {
	commits := g.Commits()
	for i := range 6 {
		commit := commits[d.rand.IntN(len(commits))].String()
		g.Git("tag", "-a", "-m", "annotated", fmt.Sprintf("v%d", i), commit)
		if i%2 == 0 {
			g.Git("tag", "-a", "-m", "a tag of a tag", fmt.Sprintf("vv%d", i), fmt.Sprintf("v%d", i))
		}
	}
	g.Git("tag", "light", commits[0].String())
	g.Git("tag", "-a", "-m", "a tree", "tree", commits[0].String()+"^{tree}")
	g.Git("tag", "-a", "-m", "a blob", "blob", g.Write("blob", []byte("a blob that no tree names\n")))
}
