package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestQuickstart runs every command and program of docs/quickstart.md and of the pages below it, in
// a shell for each page in the folder of packhorse dev, and compares what they print.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/quickstart/*.md")
	if err != nil || len(pages) != 5 {
		t.Fatalf("pages %q, %v", pages, err)
	}
	work := t.TempDir()
	lines, _, _ := strings.Cut(dev(t, filepath.Join(work, "packhorse-data")), "\n\n")
	server := regexp.MustCompile(`(?m)^export PACKHORSE=.*$`).FindString(lines)
	if server == "" {
		t.Fatalf("no server in %q", lines)
	}
	needs := map[string][]string{
		"curl.md": {"base64"}, "git.md": {"git"}, "go.md": {"go"}, "javascript.md": {"node"}, "python.md": {"python3"},
	}
	for _, path := range append(pages, "../../docs/quickstart.md") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			page := readExamples(t, path)
			tools := t.TempDir()
			for _, program := range append(needs[filepath.Base(path)], "bash", "curl") {
				link(t, tools, program)
			}
			dir := t.TempDir()
			if err := os.Symlink(filepath.Join(work, "packhorse-data"), filepath.Join(dir, "packhorse-data")); err != nil {
				t.Fatal(err)
			}
			sh := startPageShell(t, dir)
			sh.must(t, server, "PATH="+filepath.Dir(bin)+":"+tools+":$PATH")
			if filepath.Base(path) == "go.md" {
				sh.must(t, "export "+strings.Join(goOffline(t), " "))
			}
			page.run(t, sh)
			if filepath.Base(path) == "python.md" { // PyJWT is rarely installed
				sh.must(t, `python3 -c 'import ast; ast.parse(open("pyjwt_token.py").read())'`)
			}
		})
	}
}

// link makes a program be found in a folder, whatever shims PATH has for it, or skips the test.
func link(t *testing.T, dir, name string) {
	t.Helper()
	for folder := range strings.SplitSeq(os.Getenv("PATH"), string(os.PathListSeparator)) {
		program := filepath.Join(folder, name)
		if strings.Contains(folder, "shims") {
			continue
		}
		if path, err := exec.LookPath(program); err == nil {
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Skipf("skipped: %s is not installed", name)
}

// goOffline returns the variables with which the go command takes modules from the cache, where the
// dependencies of this test are.
func goOffline(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOFLAGS").Output()
	if err != nil {
		t.Fatal(err)
	}
	values := strings.Split(string(out), "\n")
	flags := slices.DeleteFunc(strings.Fields(values[2]), func(flag string) bool { return strings.HasPrefix(flag, "-mod=") })
	return []string{
		"GOCACHE='" + values[0] + "'", "GOMODCACHE='" + values[1] + "'", "GOFLAGS='" + strings.Join(flags, " ") + "'",
		"GOPROXY='file://" + values[1] + "/cache/download'", "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0",
	}
}
