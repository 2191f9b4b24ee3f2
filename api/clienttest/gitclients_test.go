//go:build clients

package clienttest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestGitClients lets clients that are not git clone a repository, commit, push a branch and fetch,
// each by a script or program that takes URL, folder and branch.
func TestGitClients(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	clients := map[string]func(t *testing.T) []string{ // the command, without its arguments
		"git": func(*testing.T) []string {
			return []string{
				"sh", "-ec", `git clone -q "$0" "$1" && cd "$1" && git checkout -q -b "$2" && echo "written by $2" > "$2.txt" &&
				git add . && git commit -q -m "Add $2.txt" && git push -q origin "$2" && git fetch -q`,
			}
		},
		"go-git": func(t *testing.T) []string {
			t.Helper()
			program := filepath.Join(t.TempDir(), "gogit")
			if out, err := try(
				t, filepath.Join(here, "gogit"), []string{"GOFLAGS=-mod=readonly"}, "go", "build", "-o", program, ".",
			); err != nil {
				t.Skipf("skipped: go-git cannot be built: %v\n%s", err, out)
			}
			return []string{program}
		},
		"isomorphic-git": func(t *testing.T) []string {
			t.Helper()
			return []string{need(t, "node"), filepath.Join(modules(t), "isomorphic.mjs")}
		},
		"dulwich": func(t *testing.T) []string {
			t.Helper()
			python := need(t, "/usr/bin/python3")
			if err := exec.CommandContext(t.Context(), python, "-c", "import dulwich").Run(); err != nil {
				t.Skip("skipped: dulwich is not installed")
			}
			return []string{python, filepath.Join(here, "dulwich_client.py")}
		},
	}
	server := start(t, packhorsetest.Options{})
	source := seed(t)
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := client(t)
			url := createRepository(t, server, "clients/"+name)
			pushAll(t, source, url)
			work := filepath.Join(t.TempDir(), "work")
			branch := "from-" + name

			command(t, t.TempDir(), nil, args[0], append(args[1:], url, work, branch)...)

			command(t, work, nil, "git", "fsck", "--strict", "--no-dangling")
			if status := command(t, work, nil, "git", "status", "--porcelain"); status != "" {
				t.Errorf("the work tree differs from the commit:\n%s", status)
			}
			pushed := strings.TrimSpace(command(t, work, nil, "git", "rev-parse", "refs/heads/"+branch))
			if got := tip(t, url, "refs/heads/"+branch); got != pushed {
				t.Errorf("%s is at %q on the server, the client pushed %s", branch, got, pushed)
			}
			main := strings.TrimSpace(command(t, source, nil, "git", "rev-parse", "main"))
			if parent := strings.TrimSpace(command(t, work, nil, "git", "rev-parse", pushed+"^")); parent != main {
				t.Errorf("the pushed commit's parent is %s, the client cloned %s", parent, main)
			}
			// git finds the client's push complete and sound, too.
			again := filepath.Join(t.TempDir(), "again.git")
			command(t, t.TempDir(), nil, "git", "clone", "-q", "--mirror", url, again)
			command(t, again, nil, "git", "fsck", "--full", "--strict", "--no-dangling")
			if text := command(t, again, nil, "git", "show", branch+":"+branch+".txt"); text != "written by "+branch+"\n" {
				t.Errorf("pushed content %q", text)
			}
		})
	}
}
