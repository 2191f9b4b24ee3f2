package fuzz

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// leaf is a file of a generated history.
type leaf struct {
	mode    string
	content string
}

// patchHistory writes a history for git fast-import in which everything happens to files that a patch can tell.
func patchHistory(random *rand.Rand, commits int) []byte {
	files := map[string]leaf{}
	return historyOf(files, commits, func(int) {
		for range 1 + random.IntN(6) {
			evolve(random, files)
		}
	})
}

// historyOf writes a history of the files, which change makes other ones before each commit but the first.
func historyOf(files map[string]leaf, commits int, change func(commit int)) []byte {
	var out bytes.Buffer
	data := func(content string) { fmt.Fprintf(&out, "data %d\n%s\n", len(content), content) }
	for i := range commits {
		if i > 0 || len(files) == 0 {
			change(i)
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
			if f.mode == "160000" {
				fmt.Fprintf(&out, "M 160000 %s %s\n", f.content, quoted)
				continue
			}
			fmt.Fprintf(&out, "M %s inline %s\n", f.mode, quoted)
			data(f.content)
		}
	}
	out.WriteString("done\n")
	return out.Bytes()
}

// evolve changes one file, or adds, moves, copies, retypes or removes one.
func evolve(random *rand.Rand, files map[string]leaf) {
	paths := slices.Sorted(maps.Keys(files))
	put := func(path string, f leaf) {
		maps.DeleteFunc(files, func(other string, _ leaf) bool {
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
		switch f.mode {
		case "100644":
			f.mode = "100755"
		case "100755":
			f.mode = "100644"
		}
		put(path, f)
	case 5: // swap two names
		other := paths[random.IntN(len(paths))]
		files[path], files[other] = files[other], files[path]
	default:
		if f.mode == "160000" {
			f.content = fmt.Sprintf("%040x", 1+random.Uint64N(1<<60))
		} else {
			f.content = editText(random, f.content)
		}
		put(path, f)
	}
}

func leafPath(random *rand.Rand) string {
	names := []string{"a", "b", "dir", "lib.c", "with space", "tab\there", "ümlaut", `quo"te`, `back\slash`, "line\nfeed", "a.orig", "z b/z"}
	path := names[random.IntN(len(names))]
	for range random.IntN(3) {
		path += "/" + names[random.IntN(len(names))]
	}
	return path
}

func newLeaf(random *rand.Rand) leaf {
	switch random.IntN(12) {
	case 0:
		return leaf{"120000", "target" + fmt.Sprint(random.IntN(3))}
	case 1:
		return leaf{"160000", fmt.Sprintf("%040x", 1+random.Uint64N(1<<60))}
	case 2:
		return leaf{"100644", ""}
	case 3, 4:
		blob := make([]byte, random.IntN(600))
		for i := range blob {
			blob[i] = byte(random.Uint32())
		}
		return leaf{"100644", "\x00" + string(blob)}
	case 5:
		return leaf{"100755", editText(random, "#!/bin/sh\n")}
	}
	return leaf{"100644", editText(random, editText(random, ""))}
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
