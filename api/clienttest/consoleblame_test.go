//go:build clients

package clienttest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// TestConsoleBlame shows the blame of a file with so many versions that it comes in parts: each
// commit stands at the first of its lines, as git blame has them.
func TestConsoleBlame(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	server := start(t, packhorsetest.Options{})
	git := oracle.New(t)
	const versions, lines, shown = 400, 620, 500
	random := rand.New(rand.NewPCG(7, 8))
	text := slices.Repeat([]string{"first"}, lines)
	var stream strings.Builder
	for i := range versions {
		for range 3 {
			text[random.IntN(lines)] = fmt.Sprintf("line of %d", i)
		}
		content := strings.Join(text, "\n") + "\n"
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter A <a@example.com> %d +0000\ndata 1\nm\nM 100644 inline a\ndata %d\n%s\n",
			1_700_000_000+i, len(content), content)
	}
	stream.WriteString("done\n")
	git.Input([]byte(stream.String()), "fast-import", "--quiet", "--done")
	pushAll(t, git.Dir, createRepository(t, server, "blamed", "main"))
	c := openConsole(t, server, token(t, server, "blamed", "--scope", "git:read"))

	var want []string
	last := ""
	for line := range strings.Lines(git.Git("blame", "-s", "--abbrev=39", "main", "--", "a")) {
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "^"), " ")
		if id = id[:7]; id == last {
			id = ""
		} else {
			last = id
		}
		want = append(want, id)
	}
	c.visit("#/blame?repo=blamed&path=a")
	for _, count := range []int{shown, lines} {
		var got []string
		var parts int
		c.run(&got, `while (document.querySelector("main [aria-busy]")) await new Promise((done) => setTimeout(done, 10));
			return [...document.querySelectorAll("main td.id")].map((cell) => cell.textContent.slice(0, 7));`)
		c.run(&parts, `return performance.getEntriesByType("resource").filter(({ name }) => name.includes("/blame?")).length;`)
		var state string
		c.run(&state, `return document.querySelector("main .about [role=status]").textContent;`)
		if len(got) != count || state != "" {
			t.Fatalf("%d lines, want %d: %q", len(got), count, state)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("line %d of %d begins with %q, want %q", i+1, count, got[i], want[i])
			}
		}
		if parts < 2 {
			t.Errorf("the blame came in %d parts", parts)
		}
		if count < lines {
			c.run(nil, `document.querySelector("main .more").click();`)
		}
	}
}
