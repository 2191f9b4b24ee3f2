//go:build clients

package clienttest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// odd makes a repository of what is neither a plain file nor a plain change, and returns its
// folder.
func odd(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git := func(args ...string) string { return command(t, dir, nil, "git", args...) }
	write := writerIn(t, dir)
	link := func(target, path string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(path string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(message string) {
		t.Helper()
		git("add", ".")
		git("commit", "-q", "-m", message)
	}
	long := func(mark string) string {
		return strings.Repeat("abc ", 10_000) + mark + strings.Repeat(" def", 10_000)
	}
	git("init", "-q", "-b", "main")
	git("config", "core.autocrlf", "false")
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	write("name.txt", lines.String())
	write("same.txt", "the same\nas before\n")
	write("crlf.txt", "one\r\ntwo\r\n")
	write("mixed.txt", "one\r\ntwo\nthree")
	write("long.txt", long("before")+"\n")
	write("typed", "a file\n")
	write("empty", "")
	link("target", "link")
	commit("first")
	git("update-index", "--add", "--cacheinfo", "160000,"+strings.TrimSpace(git("rev-parse", "HEAD"))+",module")
	git("commit", "-q", "-m", "submodule")
	git("tag", "submodule")
	git("rm", "-q", "--cached", "module")
	git("mv", "name.txt", "renamed.txt")
	git("mv", "same.txt", "moved.txt")
	write("renamed.txt", strings.Replace(lines.String(), "line 30\n", "line thirty\n", 1))
	write("crlf.txt", "one\ntwo\n")
	write("long.txt", long("after")+"\n")
	for _, path := range []string{"typed", "link", "empty"} {
		remove(path)
	}
	link("elsewhere", "typed")
	link("other", "link")
	commit("changes")
	git("tag", "changes")
	branches := []string{"merge", "-q", "-m", "octopus"}
	for i := range 5 {
		name := fmt.Sprintf("arm%d", i)
		git("checkout", "-q", "-b", name, "changes")
		write(name, name+"\n")
		commit(name)
		branches = append(branches, name)
	}
	git("checkout", "-q", "main")
	git(branches...)
	for i := range 6 {
		git("tag", fmt.Sprintf("v%d", i))
	}
	return dir
}

// TestConsoleOdd shows what is neither a plain file nor a plain change: each page says what it is.
func TestConsoleOdd(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server := start(t, packhorsetest.Options{})
	pushAll(t, odd(t), createRepository(t, server, "odd"))
	c := openConsole(t, server, token(t, server, "odd", "--scope", "git:read"))
	const repo = "repo=odd&"
	for address, want := range map[string]struct{ has, not []string }{
		"#/tree?" + repo + "ref=submodule":                     {has: []string{"symbolic link", "submodule"}},
		"#/file?" + repo + "ref=submodule&path=link":           {has: []string{"symbolic link", "6 B"}},
		"#/file?" + repo + "ref=submodule&path=crlf.txt":       {has: []string{"line ends are CR LF", "2 lines"}, not: []string{"symbolic"}},
		"#/file?" + repo + "ref=submodule&path=mixed.txt":      {has: []string{"line ends are mixed, 1 of 2 CR LF, no line end at the end"}},
		"#/file?" + repo + "ref=main&path=crlf.txt":            {has: []string{"2 lines"}, not: []string{"line end"}},
		"#/file?" + repo + "ref=submodule&path=empty":          {has: []string{"The file is empty."}, not: []string{"line end"}},
		"#/commit?" + repo + "ref=submodule":                   {has: []string{"submodule", "Subproject commit"}, not: []string{"FileBefore", "no line end"}},
		"#/search?" + repo + "q=after":                         {has: []string{"… ", "abc after def", " …"}},
		"#/history?" + repo + "ref=main":                       {has: []string{"octopus (merge)", "and more"}},
		"#/commit?" + repo + "ref=main":                        {has: []string{"Parents", "against the first parent", "4 files changed"}},
		"#/compare?" + repo + "ref=arm0&base=main":             {has: []string{"No file differs"}},
		"#/blame?" + repo + "ref=main&path=link":               {has: []string{"other"}},
		"#/history?" + repo + "ref=main&path=renamed.txt":      {has: []string{"changes"}},
		"#/commit?" + repo + "ref=submodule~1":                 {has: []string{"The file is empty.", "symbolic link"}},
		"#/repository?" + repo:                                 {has: []string{"submodule", "arm4"}},
		"#/tree?" + repo + "ref=main@{seq:2}":                  {has: []string{"renamed.txt"}},
		"#/commit?" + repo + "ref=main@{seq:2}":                {has: []string{"octopus"}},
		"#/file?" + repo + "ref=submodule&path=long.txt":       {has: []string{"before", "1 line"}},
		"#/blame?" + repo + "ref=submodule&path=crlf.txt":      {has: []string{"one"}},
		"#/history?" + repo + "ref=main%5E2":                   {has: []string{"arm"}},
		"#/file?" + repo + "ref=main&path=renamed.txt&line=31": {has: []string{"line thirty"}},
	} {
		page := c.visit(address)
		for _, text := range want.has {
			if !strings.Contains(page.Text, text) {
				t.Errorf("%s does not show %q", address, text)
			}
		}
		for _, text := range want.not {
			if strings.Contains(page.Text, text) {
				t.Errorf("%s shows %q", address, text)
			}
		}
	}

	c.visit("#/commit?" + repo + "ref=changes")
	var files map[string]string
	c.run(&files, `return Object.fromEntries([...document.querySelectorAll("details.file")].map((d) =>
		[d.querySelector("summary").textContent, d.querySelector(".file-diff").textContent]));`)
	for summary, texts := range map[string][]string{
		"modified crlf.txt +2 −2":              {"one⟨CR⟩", "two⟨CR⟩"},
		"modified link +1 −1":                  {"symbolic link", "target", "other"},
		"modified long.txt +1 −1":              {"39,800 characters … ", "before", "after", " characters more"},
		"renamed name.txt → renamed.txt +1 −1": {"line thirty"},
		"renamed same.txt → moved.txt +0 −0":   {"The content is the same."},
		"deleted empty +0 −0":                  {"The file is empty."},
	} {
		text, shown := files[summary]
		if !shown {
			t.Errorf("the commit has no %q, but %d others", summary, len(files))
			for summary := range files {
				t.Logf("it has %q", summary)
			}
		}
		for _, want := range texts {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not show %q: %.400q", summary, want, text)
			}
		}
		if strings.Contains(text, "no line end") || len(text) > 20_000 {
			t.Errorf("%s shows %d bytes: %.400q", summary, len(text), text)
		}
	}
	for summary, text := range files {
		if strings.Contains(summary, " typed ") && (!strings.Contains(text, "a file") || !strings.Contains(text, "elsewhere") ||
			strings.Contains(text, "iff --git")) {
			t.Errorf("%s shows %q", summary, text)
		}
	}
	for _, window := range windows {
		c.size(window.width, 900, window.dark)
		c.visit("#/commit?" + repo + "ref=changes")
		c.keepPicture(window.name + "-odd")
	}
}
