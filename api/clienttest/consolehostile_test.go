//go:build clients

package clienttest_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const markup = `<script>alert(1)</script><img src=x onerror=alert(2)>`

// hostileFiles are names and contents that a page must show and not obey.
func hostileFiles() map[string]string {
	return map[string]string{
		strings.ReplaceAll(markup, "/", "_") + ".html": strings.Repeat(markup, 3) + "\n<svg onload=alert(3)>\n",
		"rtl\u202egnp.exe":                  "user = \"\u202e\u2066// admin\u2069 \u2066\"\nzero\u200bwidth\n",
		"esc\x1b[31mred\x07.txt":            "\x1b[2J\x1b]0;title\x07 red \x1b[31m\r\nbell\x07\n",
		strings.Repeat("long", 50) + ".js":  "var a = \"" + strings.Repeat("A", 5000) + "\";\n",
		"invalid\xff\xfe.c":                 "int x = 1; \xff\xfe /* \xc3\x28 */\n",
		"a b\tc\"d'e&amp;<b>.go":            "package main // <b>bold</b>\n/* open\n",
		"javascript:alert(4)":               "#/repository?repo=x\n",
		"\u0645\u0631\u062d\u0628\u0627.py": "# \u0645\u0631\u062d\u0628\u0627\nprint(\"hi\")\n",
		"__proto__.js":                      "constructor.toString()\n",
		"constructor":                       "one\n",
		"line\nfeed":                        "y\n",
		"..%2f..&q=1#frag?x=%00+ .c":        "z\n",
		"many":                              strings.Repeat("x\n", 4000),
		"binary":                            "\x00\x01\x02\xff",
		"empty":                             "",
		"tags\U000e0041\u2028\u2029\ufeffhere.md": "\u0085\u009b31m c1 \u061c \u200e\n",
	}
}

// hostile makes a repository full of them, also in refs, messages and persons, and returns its
// folder. Git writes the objects as they are told, since no file system holds all these names.
func hostile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git := func(input string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
		cmd.Stdin = strings.NewReader(input)
		cmd.Env = append(environment(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		for _, who := range []string{"GIT_AUTHOR_", "GIT_COMMITTER_"} {
			cmd.Env = append(cmd.Env, who+"NAME=&lt;b&gt;\u202eevil\x1b[31m \"onload=alert(5)", who+"EMAIL=\"onerror=alert(6)\u2066",
				who+"DATE=2001-02-03T04:05:06Z")
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	git("", "init", "-q", "-b", "main")
	tree := func(changed string) string {
		var entries strings.Builder
		for name, content := range hostileFiles() {
			if name == "constructor" {
				content += changed
			}
			entries.WriteString("100644 blob " + git(content, "hash-object", "-w", "--stdin") + "\t" + name + "\x00")
		}
		folder := git(entries.String(), "mktree", "-z")
		return git(entries.String()+"040000 tree "+folder+"\t<b>folder\u202e&\x00", "mktree", "-z")
	}
	first := git(markup+"\n\n\u202e\x1b[31m"+markup, "commit-tree", tree(""))
	second := git("<b>second</b> \u202e", "commit-tree", tree(markup+"\n"), "-p", first)
	merge := git("merge &lt;", "commit-tree", tree(markup+"\n"), "-p", second, "-p", first)
	git("", "update-ref", "refs/heads/main", merge)
	git("", "update-ref", "refs/heads/<img/src=x>\u202e'\"", first)
	git("", "update-ref", "refs/tags/<script>alert(7)<_script>", first)
	return dir
}
