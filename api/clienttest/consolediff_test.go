//go:build clients

package clienttest_test

import (
	"fmt"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestConsoleLargeDiff shows diffs that a page takes in two steps, and not even then as a whole.
func TestConsoleLargeDiff(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server := start(t, packhorsetest.Options{})
	dir := t.TempDir()
	write := writerIn(t, dir)
	git := func(args ...string) { command(t, dir, nil, "git", args...) }
	git("init", "-q", "-b", "main")
	const large, larger = 200, 500 // files of 15 KB
	text := strings.Repeat(strings.Repeat("word ", 9)+"word\n", 300)
	for i := range larger {
		write(fmt.Sprintf("file%03d.txt", i), fmt.Sprintln(i)+text)
		if i+1 == large || i+1 == larger {
			git("add", ".")
			git("commit", "-q", "-m", "files")
			git("tag", fmt.Sprintf("until%d", i+1))
		}
	}
	pushAll(t, dir, createRepository(t, server, "large"))
	c := openConsole(t, server, token(t, server, "large", "--scope", "git:read"))

	for tag, want := range map[string]struct {
		files         int // in the end; 0: not all of them
		notice, total string
	}{
		"until200": {files: large, total: "200 files changed"},
		"until500": {notice: "does not take more", total: "The first "},
	} {
		c.visit("#/commit?repo=large&ref=" + tag)
		var steps []struct {
			Files, Listed, Different int
			Notice, Total            string
			More                     bool
		}
		c.run(&steps, `const one = (selector) => document.querySelector("main " + selector);
			const steps = [];
			const look = async () => {
				while (one("div[aria-busy]")) await new Promise((done) => setTimeout(done, 10));
				const files = [...document.querySelectorAll("main details.file summary")].map((s) => s.textContent);
				steps.push({ Files: files.length, Different: new Set(files).size,
					Listed: one(".changed-files").querySelectorAll("li").length,
					Notice: one(".notice[role=status]").hidden ? "" : one(".notice[role=status]").textContent,
					Total: one(".changed-files summary").textContent, More: !one(".more").hidden });
			};
			await look();
			one(".more").click();
			while (!one(".more").hidden) await new Promise((done) => setTimeout(done, 10));
			await look();
			return steps;`)
		for i, s := range steps {
			if s.Files != s.Listed || s.Files != s.Different {
				t.Errorf("%s, step %d: %d files, %d of them different, %d in the list", tag, i, s.Files, s.Different, s.Listed)
			}
		}
		first, last := steps[0], steps[1]
		if shown := fmt.Sprintf("the first %d files", first.Files); first.Files == 0 || !first.More ||
			!strings.Contains(first.Notice, shown) || first.Total != "The first "+strings.TrimPrefix(shown, "the first ") {
			t.Errorf("%s: first %+v", tag, first)
		}
		if last.Files <= first.Files || last.More || want.files > 0 && last.Files != want.files ||
			(want.notice == "") != (last.Notice == "") || !strings.Contains(last.Notice, want.notice) ||
			!strings.HasPrefix(last.Total, want.total) {
			t.Errorf("%s: %+v, and after More files %+v", tag, first, last)
		}
	}
}
