package merge_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"packhorse/fuzz/oracle"
)

// mergeHistories writes histories for git fast-import that end in branches ours/N and theirs/N
// each: plain forks, unrelated roots, and criss-cross merges with two or three merge bases.
func mergeHistories(random *rand.Rand, count int) []byte {
	h := &mergeWriter{random: random, clock: 1_700_000_000}
	for n := range count {
		root := h.newFiles()
		base := h.commit("base", root)
		a, b := maps.Clone(root), maps.Clone(root)
		if n%8 == 4 {
			h.gather(root, a, b)
			base = h.commit("base", root)
		}
		h.divert(a)
		h.divert(b)
		ours, theirs := h.commit("a", a, base), h.commit("b", b, base)
		switch n % 8 {
		case 0:
			theirs = h.commit("root", b)
		case 1, 2: // each side merges the other, in its own way
			c, d := maps.Clone(a), maps.Clone(b)
			h.blend(c, b)
			h.blend(d, a)
			left, right := h.commit("c", c, ours, theirs), h.commit("d", d, theirs, ours)
			if n%16 == 1 { // and once more
				h.blend(c, d)
				left, right = h.commit("c", c, left, right), h.commit("d", d, right, left)
			}
			h.divert(c)
			h.divert(d)
			ours, theirs = h.commit("c", c, left), h.commit("d", d, right)
		case 3: // three merge bases
			e := maps.Clone(root)
			h.divert(e)
			third := h.commit("e", e, base)
			c, d := maps.Clone(a), maps.Clone(b)
			h.blend(c, e)
			h.blend(d, e)
			ours, theirs = h.commit("c", c, ours, theirs, third), h.commit("d", d, theirs, third, ours)
		}
		fmt.Fprintf(&h.out, "reset refs/heads/ours/%d\nfrom :%d\n\nreset refs/heads/theirs/%d\nfrom :%d\n\n", n, ours, n,
			theirs)
	}
	h.out.WriteString("done\n")
	return h.out.Bytes()
}

// mergeWriter writes commits.
type mergeWriter struct {
	random *rand.Rand
	out    bytes.Buffer
	clock  int
	marks  int
}

// commit writes a commit with exactly the given files and returns its mark.
func (h *mergeWriter) commit(message string, files map[string]oracle.Leaf, parents ...int) int {
	h.marks++
	h.clock += 10
	data := func(content string) { fmt.Fprintf(&h.out, "data %d\n%s\n", len(content), content) }
	fmt.Fprintf(&h.out, "reset refs/heads/work\n\ncommit refs/heads/work\nmark :%d\ncommitter C <c@d> %d +0000\n", h.marks,
		h.clock)
	data(fmt.Sprintf("%s %d", message, h.marks))
	for i, parent := range parents {
		fmt.Fprintf(&h.out, "%s :%d\n", [2]string{"from", "merge"}[min(i, 1)], parent)
	}
	h.out.WriteString("deleteall\n")
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		if f.Mode == "160000" {
			fmt.Fprintf(&h.out, "M 160000 %s %s\n", f.Content, path)
			continue
		}
		fmt.Fprintf(&h.out, "M %s inline %s\n", f.Mode, path)
		data(f.Content)
	}
	return h.marks
}

// newFiles draws a tree in which many files resemble each other.
func (h *mergeWriter) newFiles() map[string]oracle.Leaf {
	files := make(map[string]oracle.Leaf)
	for range 4 + h.random.IntN(14) {
		h.put(files, h.path(), h.leaf())
	}
	return files
}

func (h *mergeWriter) path() string {
	folders := []string{"", "", "d", "d", "d/e", "d/e/f", "g", "g/h", "k", "a.b", "a", "d-x"}
	names := []string{"a", "b", "m.c", "n.c", "a.b", "README", "d", "g", "x", "y"}
	path := names[h.random.IntN(len(names))]
	if folder := folders[h.random.IntN(len(folders))]; folder != "" {
		path = folder + "/" + path
	}
	return path
}

func (h *mergeWriter) leaf() oracle.Leaf {
	switch h.random.IntN(16) {
	case 0:
		return oracle.Leaf{Mode: "120000", Content: fmt.Sprint("target", h.random.IntN(4))}
	case 1:
		return oracle.Leaf{Mode: "160000", Content: fmt.Sprintf("%040x", 1+h.random.Uint64N(8))}
	case 2:
		return oracle.Leaf{Mode: "100644", Content: "\x00binary" + strings.Repeat(fmt.Sprint(h.random.IntN(3)), 50)}
	case 3:
		return oracle.Leaf{Mode: "100644", Content: ""}
	case 4:
		return oracle.Leaf{Mode: "100755", Content: h.text()}
	default:
		return oracle.Leaf{Mode: "100644", Content: h.text()}
	}
}

// text draws lines of which many are those of other texts.
func (h *mergeWriter) text() string {
	var text strings.Builder
	family := h.random.IntN(5)
	for i := range 6 + h.random.IntN(20) {
		fmt.Fprintf(&text, "line %d of family %d\n", i, family)
		if h.random.IntN(8) == 0 {
			text.WriteString("}\n\n")
		}
	}
	return text.String()
}

// put places a file where nothing else may be in its way.
func (h *mergeWriter) put(files map[string]oracle.Leaf, path string, f oracle.Leaf) {
	maps.DeleteFunc(files, func(other string, _ oracle.Leaf) bool {
		return strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/")
	})
	files[path] = f
}

// divert makes one side's changes.
func (h *mergeWriter) divert(files map[string]oracle.Leaf) {
	for range 1 + h.random.IntN(6) {
		h.change(files)
	}
}

func (h *mergeWriter) change(files map[string]oracle.Leaf) {
	paths := slices.Sorted(maps.Keys(files))
	if len(paths) < 3 {
		h.put(files, h.path(), h.leaf())
		return
	}
	path := paths[h.random.IntN(len(paths))]
	f := files[path]
	switch h.random.IntN(16) {
	case 0:
		delete(files, path)
	case 1, 2:
		h.put(files, h.path(), h.leaf())
	case 3:
		delete(files, path)
		h.put(files, h.path(), f)
	case 4:
		delete(files, path)
		h.put(files, h.path(), h.edit(f))
	case 5, 6, 7:
		h.moveFolder(files, paths, path)
	case 8:
		if f.Mode == "100644" {
			f.Mode = "100755"
		}
		files[path] = f
	case 9:
		files[path] = h.leaf()
	case 10: // a folder in the file's place, which may hold it
		delete(files, path)
		h.put(files, path+"/"+[]string{"a", "b"}[h.random.IntN(2)], f)
	case 11: // a file in the place of its folder
		if i := strings.LastIndexByte(path, '/'); i > 0 {
			h.put(files, path[:i], f)
		}
	case 12: // another file beside it
		if i := strings.LastIndexByte(path, '/'); i > 0 {
			h.put(files, path[:i]+"/"+[]string{"new", "new2", "a"}[h.random.IntN(3)], h.leaf())
		}
	default:
		files[path] = h.edit(f)
	}
}

// moveFolder moves the files in the folder of a path to one or two others.
func (h *mergeWriter) moveFolder(files map[string]oracle.Leaf, paths []string, path string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return
	}
	from := path[:i+1]
	to := []string{"moved/", "z/", "g/", "k/", "d/", "z/z/", ""}
	one, two := to[h.random.IntN(len(to))], to[h.random.IntN(len(to))]
	if h.random.IntN(3) > 0 {
		two = one
	}
	for n, p := range paths {
		if f, ok := files[p]; ok && strings.HasPrefix(p, from) {
			delete(files, p)
			target := one
			if n%2 == 0 {
				target = two
			}
			h.put(files, target+strings.TrimPrefix(p, from), f)
		}
	}
}

// edit changes some lines, or the whole content if it has none.
func (h *mergeWriter) edit(f oracle.Leaf) oracle.Leaf {
	switch {
	case f.Mode == "160000" || f.Mode == "120000" || strings.HasPrefix(f.Content, "\x00"):
		other := h.leaf()
		for other.Mode != f.Mode {
			other = h.leaf()
		}
		return other
	}
	lines := strings.SplitAfter(f.Content, "\n")
	for range 1 + h.random.IntN(3) {
		at := h.random.IntN(len(lines))
		fresh := fmt.Sprintf("change %d\n", h.random.IntN(20))
		lines = slices.Replace(lines, at, min(len(lines), at+h.random.IntN(3)), fresh)
	}
	f.Content = strings.Join(lines, "")
	return f
}

// blend takes over some of another side's files, as a merge would.
func (h *mergeWriter) blend(files, other map[string]oracle.Leaf) {
	for _, path := range slices.Sorted(maps.Keys(other)) {
		if h.random.IntN(3) > 0 {
			h.put(files, path, other[path])
		}
	}
	if h.random.IntN(2) == 0 {
		h.change(files)
	}
}

// gather lets one side move two folders into one while the other puts files of one name into both.
func (h *mergeWriter) gather(root, a, b map[string]oracle.Leaf) {
	for _, folder := range []string{"p/", "q/"} {
		for i := range 3 {
			f, name := oracle.Leaf{Mode: "100644", Content: h.text()}, fmt.Sprintf("%d%s", i, folder[:1])
			h.put(root, folder+name, f)
			h.put(a, folder+name, f)
			h.put(b, "r/"+name, f)
		}
		h.put(a, folder+"new", h.leaf())
	}
}
