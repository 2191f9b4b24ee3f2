//go:build clients

package clienttest_test

import (
	"fmt"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestConsoleLargeDiff shows a diff page by page, to its end.
func TestConsoleLargeDiff(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server := start(t, packhorsetest.Options{})
	dir := t.TempDir()
	write := writerIn(t, dir)
	git := func(args ...string) { command(t, dir, nil, "git", args...) }
	git("init", "-q", "-b", "main")
	const files, firstFiles = 300, 50 // of 15 KB: a page that is asked for has 1 MiB
	text := strings.Repeat(strings.Repeat("word ", 9)+"word\n", 300)
	for i := range files {
		write(fmt.Sprintf("file%03d.txt", i), fmt.Sprintln(i)+text)
	}
	write("yarn.lock", "left out\n")
	git("add", ".")
	git("commit", "-q", "-m", "files")
	pushAll(t, dir, createRepository(t, server, "large"))
	c := openConsole(t, server, token(t, server, "large", "--scope", "git:read"))

	c.visit("#/commit?repo=large&ref=main")
	var steps []struct {
		Files, Listed, Different int
		Notice, Total            string
		More                     bool
	}
	c.run(&steps, `const one = (selector) => document.querySelector("main " + selector);
		const steps = [];
		for (;;) {
			while (one("div[aria-busy]")) await new Promise((done) => setTimeout(done, 10));
			const files = [...document.querySelectorAll("main details.file summary")].map((s) => s.textContent);
			const more = !one(".more").hidden;
			steps.push({ Files: files.length, Different: new Set(files).size,
				Listed: one(".changed-files").querySelectorAll("li").length,
				Notice: one(".notice[role=status]").hidden ? "" : one(".notice[role=status]").textContent,
				Total: one(".changed-files summary").textContent, More: more });
			if (!more) return steps;
			one(".more").click();
			while (!one(".more").hidden && one(".changed-files").querySelectorAll("li").length === files.length)
				await new Promise((done) => setTimeout(done, 10));
		}`)
	for i, s := range steps {
		if s.Files != s.Listed || s.Files != s.Different || s.Notice != "" {
			t.Errorf("step %d: %+v", i, s)
		}
		if s.More && s.Total != fmt.Sprintf("The first %d files", s.Files) {
			t.Errorf("step %d: %q", i, s.Total)
		}
	}
	first, last := steps[0], steps[len(steps)-1]
	if first.Files != firstFiles || len(steps) < 4 || last.Files != files+1 ||
		!strings.HasPrefix(last.Total, fmt.Sprintf("%d files changed, +", files+1)) {
		t.Errorf("%d steps, from %+v to %+v", len(steps), first, last)
	}
}
