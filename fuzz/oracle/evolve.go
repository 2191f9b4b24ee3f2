package oracle

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Leaf is a file of a generated history.
type Leaf struct {
	Mode    string // as git writes it
	Content string // of a submodule the ID of a commit
}

// Evolve builds a history on refs/heads/main with every kind of change that a patch can express: it
// begins with files, which are changed at random before each further commit. Equal arguments give
// equal objects.
func (r *Repository) Evolve(random *rand.Rand, files map[string]Leaf, commits int) {
	r.tb.Helper()
	if files == nil {
		files = map[string]Leaf{}
	}
	var out bytes.Buffer
	data := func(content string) { fmt.Fprintf(&out, "data %d\n%s\n", len(content), content) }
	for i := range commits {
		if i > 0 || len(files) == 0 {
			for range 1 + random.IntN(6) {
				evolve(random, files)
			}
		}
		fmt.Fprintf(&out, "commit refs/heads/main\nmark :%d\ncommitter C <c@d> %d +0000\n", i+1, 1_700_000_000+i)
		data("m")
		if i > 0 {
			fmt.Fprintf(&out, "from :%d\n", i)
		}
		out.WriteString("deleteall\n")
		for _, path := range slices.Sorted(maps.Keys(files)) {
			f := files[path]
			quoted := `"` + strings.NewReplacer("\\", `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
			if f.Mode == "160000" {
				fmt.Fprintf(&out, "M 160000 %s %s\n", f.Content, quoted)
				continue
			}
			fmt.Fprintf(&out, "M %s inline %s\n", f.Mode, quoted)
			data(f.Content)
		}
	}
	out.WriteString("done\n")
	r.Input(out.Bytes(), "fast-import", "--quiet", "--done", "--date-format=raw")
}

// evolve changes one file, or adds, moves, copies, retypes or removes one.
func evolve(random *rand.Rand, files map[string]Leaf) {
	paths := slices.Sorted(maps.Keys(files))
	put := func(path string, f Leaf) {
		maps.DeleteFunc(files, func(other string, _ Leaf) bool {
			return strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/")
		})
		files[path] = f
	}
	if len(paths) < 4 || random.IntN(5) == 0 {
		put(leafPath(random), newLeaf(random))
		return
	}
	path := paths[random.IntN(len(paths))]
	f := files[path]
	switch random.IntN(10) {
	case 0:
		delete(files, path)
	case 1:
		delete(files, path)
		put(leafPath(random), f)
	case 2:
		put(leafPath(random), f)
	case 3:
		put(path, newLeaf(random))
	case 4:
		switch f.Mode {
		case "100644":
			f.Mode = "100755"
		case "100755":
			f.Mode = "100644"
		}
		put(path, f)
	case 5: // swap two names
		other := paths[random.IntN(len(paths))]
		files[path], files[other] = files[other], files[path]
	default:
		if f.Mode == "160000" {
			f.Content = fmt.Sprintf("%040x", 1+random.Uint64N(1<<60))
		} else {
			f.Content = editText(random, f.Content)
		}
		put(path, f)
	}
}

func leafPath(random *rand.Rand) string {
	names := []string{
		"a", "b", "dir", "lib.c", "with space", "tab\there", "ümlaut", `quo"te`, `back\slash`, "line\nfeed", "a.orig",
		"z b/z",
	}
	var path strings.Builder
	path.WriteString(names[random.IntN(len(names))])
	for range random.IntN(3) {
		path.WriteString("/" + names[random.IntN(len(names))])
	}
	return path.String()
}

func newLeaf(random *rand.Rand) Leaf {
	switch random.IntN(12) {
	case 0:
		return Leaf{"120000", "target" + fmt.Sprint(random.IntN(3))}
	case 1:
		return Leaf{"160000", fmt.Sprintf("%040x", 1+random.Uint64N(1<<60))}
	case 2:
		return Leaf{"100644", ""}
	case 3, 4:
		blob := make([]byte, random.IntN(600))
		for i := range blob {
			blob[i] = byte(random.Uint32())
		}
		return Leaf{"100644", "\x00" + string(blob)}
	case 5:
		return Leaf{"100755", editText(random, "#!/bin/sh\n")}
	}
	return Leaf{"100644", editText(random, editText(random, ""))}
}

// editText changes some lines of a text, which are few in kind so that hunks fit in several places.
func editText(random *rand.Rand, text string) string {
	lines := strings.SplitAfter(text, "\n")
	for range 1 + random.IntN(4) {
		var fresh []string
		for range random.IntN(12) {
			fresh = append(fresh, strings.Repeat(string(" \tabc{}"[random.IntN(7)]), random.IntN(3))+"\n")
		}
		at := random.IntN(len(lines))
		lines = slices.Replace(lines, at, min(len(lines), at+random.IntN(3)), fresh...)
		if len(lines) == 0 {
			lines = []string{""}
		}
	}
	text = strings.Join(lines, "")
	if random.IntN(4) == 0 {
		text = strings.TrimSuffix(text, "\n")
	}
	return text
}
