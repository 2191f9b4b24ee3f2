// Package oracle asks the installed git for the right answer, and makes repositories for that. It
// is for tests and benchmarks only.
//
// A [Repository] is bare, lives in a temporary folder of the test, and sees nothing of the machine:
// no configuration of the system or the user, fixed identities, dates and time zone, English
// messages. The same calls give the same object IDs everywhere. A test that needs git where there
// is none is skipped.
package oracle

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Identity and date of everything that git makes here, unless a command says otherwise.
const (
	Name  = "Ada Oracle"
	Email = "ada@example.com"
	Date  = "1700000000 +0000"
)

// Repository is a repository of the installed git.
type Repository struct {
	Dir string // of the bare repository
	tb  testing.TB
	env []string
}

// New returns an empty bare repository with branch main, gone when the test ends.
func New(tb testing.TB) *Repository {
	tb.Helper()
	return NewAt(tb, filepath.Join(tb.TempDir(), "oracle.git"))
}

// NewAt is [New] in a folder of the caller's choice, which git creates if needed.
func NewAt(tb testing.TB, dir string) *Repository {
	tb.Helper()
	r := Open(tb, dir)
	r.Git("init", "--quiet", "--bare", "--initial-branch=main", dir)
	return r
}

// Open returns the repository that exists in dir.
func Open(tb testing.TB, dir string) *Repository {
	tb.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		tb.Skip("git is not installed")
	}
	return &Repository{Dir: dir, tb: tb, env: Env(dir)}
}

// Env returns the whole environment of a git command in the repository in dir.
func Env(dir string) []string { return append(EnvOutside(dir), "GIT_DIR="+dir) }

// EnvOutside is [Env] for commands that are in no repository, or find theirs by their working
// folder: also for what runs git, and for other clients. No proxy of the machine comes between them
// and a server.
func EnvOutside(home string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + home,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=" + Name, "GIT_AUTHOR_EMAIL=" + Email, "GIT_AUTHOR_DATE=" + Date,
		"GIT_COMMITTER_NAME=" + Name, "GIT_COMMITTER_EMAIL=" + Email, "GIT_COMMITTER_DATE=" + Date,
		"LC_ALL=C", "TZ=UTC",
	}
}

// Git runs a git command and returns its output, less the final newline. A failure ends the test.
func (r *Repository) Git(args ...string) string {
	r.tb.Helper()
	return strings.TrimSuffix(string(r.Input(nil, args...)), "\n")
}

// Input runs a git command on stdin and returns its whole output. A failure ends the test.
func (r *Repository) Input(stdin []byte, args ...string) []byte {
	r.tb.Helper()
	stdout, err := r.Try(stdin, args...)
	if err != nil {
		r.tb.Fatal(err)
	}
	return stdout
}

// Try runs a git command that may fail: the error is an [*ExitError] then. The output is returned
// in any case.
func (r *Repository) Try(stdin []byte, args ...string) ([]byte, error) {
	r.tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = r.env
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return stdout.Bytes(), &ExitError{Args: args, Code: exit.ExitCode(), Stderr: stderr.String()}
	case err != nil:
		r.tb.Fatalf("run git: %v", err)
	}
	return stdout.Bytes(), nil
}

// ExitError is a git command that ended with another status than 0.
type ExitError struct {
	Args   []string
	Code   int
	Stderr string
}

// Error shows the command, its status and the error output.
func (e *ExitError) Error() string {
	return fmt.Sprintf("git %s: status %d: %s", strings.Join(e.Args, " "), e.Code, e.Stderr)
}

// Write stores an object of any content, valid or not, and returns its ID.
func (r *Repository) Write(objectType string, data []byte) string {
	r.tb.Helper()
	return strings.TrimSpace(string(r.Input(data, "hash-object", "-t", objectType, "--literally", "--stdin", "-w")))
}

// Read returns the content of an object.
func (r *Repository) Read(objectType, id string) []byte {
	r.tb.Helper()
	return r.Input(nil, "cat-file", objectType, id)
}

// Objects returns the IDs of all objects that the repository holds, one line each as "<id> <type>
// <size>", sorted by ID.
func (r *Repository) Objects() []string {
	r.tb.Helper()
	out := r.Git("cat-file", "--batch-all-objects", "--batch-check")
	if out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}
