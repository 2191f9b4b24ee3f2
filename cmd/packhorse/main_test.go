package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/odb/kv/postgres/postgrestest"
)

// bin is the binary under test, built once.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if spec, ok := os.LookupEnv(holdEnv); ok {
			return holdConnections(spec)
		}
		dir, err := os.MkdirTemp("", "packhorse-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if bin, err = packhorsetest.Build(context.Background(), dir, "invariants"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return postgrestest.Main(m)
	}())
}

// result is how a run of the binary ended.
type result struct {
	status      int
	out, errOut string
}

// packhorse runs the binary to its end, with more environment variables and without those of the
// machine, however full its disk is.
func packhorse(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return runBinary(t, bin, env, args...)
}

// runBinary is packhorse for a binary of that path.
func runBinary(t *testing.T, path string, env []string, args ...string) result {
	t.Helper()
	return runReading(t, nil, path, append([]string{"PACKHORSE_MIN_FREE=1MiB"}, env...), args...)
}

// runReading runs a binary with something on stdin, nil for nothing. env is its whole environment
// but for PATH and an empty HOME.
func runReading(t *testing.T, stdin io.Reader, path string, env []string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{status: cmd.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String()}
}

// write puts a file into a new folder and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVersion(t *testing.T) {
	t.Parallel()
	got := packhorse(t, nil, "version")
	if got.status != 0 || !strings.HasPrefix(got.out, "packhorse ") || strings.Count(got.out, "\n") != 1 {
		t.Errorf("%+v", got)
	}
	if flag := packhorse(t, nil, "--version"); flag != got {
		t.Errorf("--version: %+v", flag)
	}
}

// TestCustomary asks for help in the ways that other programs know.
func TestCustomary(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"help", "backup", "list"}} {
		want := packhorse(t, nil, append(args[1:], "--help")...)
		if got := packhorse(t, nil, args...); got != want || got.status != 0 || !strings.HasPrefix(got.out, "Usage: packhorse") {
			t.Errorf("%q: %+v, want %+v", args, got, want)
		}
	}
	got := packhorse(t, nil)
	for _, name := range []string{"dev", "webhooks", "version"} {
		if got.status != 2 || !strings.Contains(got.errOut, name) || strings.Count(got.errOut, "\n") != 1 {
			t.Errorf("no command: %+v", got)
		}
	}
}

// TestHelp checks that every flag shows its variable, and its default if it has one.
func TestHelp(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"serve": {
			"--listen=ADDR", "$PACKHORSE_LISTEN", "--object-max=4GiB", "--refs-max=1000000", "--drain=30s",
			"--log-level=info", "--memory=",
		},
		"dev":           {"--listen=\"127.0.0.1:8080\"", "--data=\"packhorse-data\""},
		"token":         {"token sign", "token inspect"},
		"webhooks list": {"--data=DIR"},
		"token sign":    {"--ttl=1h", "--scope=git:read,git:write"},
	}
	for command, want := range tests {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			got := packhorse(t, []string{"COLUMNS=200"}, append(strings.Fields(command), "--help")...)
			if got.status != 0 || got.errOut != "" {
				t.Errorf("%+v", got)
			}
			for _, text := range want {
				if !strings.Contains(got.out, text) {
					t.Errorf("the help does not tell %s:\n%s", text, got.out)
				}
			}
			if strings.HasPrefix(command, "webhooks") && strings.Contains(got.out, "--memory") {
				t.Errorf("the help tells of flags that mean nothing here:\n%s", got.out)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	key := write(t, "k.pem", "no key")
	tests := map[string]struct {
		env  []string
		args []string
		want string // in the complaint
	}{
		"no command":      {want: "expected one of"},
		"unknown command": {args: []string{"merge"}, want: "unexpected argument merge"},
		"unknown flag":    {args: []string{"version", "--fast"}, want: "unknown flag --fast"},
		"missing flags":   {args: []string{"token"}, want: "missing flags: --key=PRIVATE.pem, --org=NAME"},
		"unknown scope":   {args: []string{"token", "--org", "a", "--key", key, "--scope", "root"}, want: "--scope"},
		"negative life": {
			args: []string{"token", "--org", "a", "--key", key, "--ttl=-1h"}, want: "--ttl: -1h0m0s is too short: expected 1s or more",
		},
		"malformed policy": {
			args: []string{"token", "--org", "a", "--key", key, "--ref-policy", "main"}, want: `"main" is not PATTERN=OP,OP`,
		},
		"path policy": {
			args: []string{"token", "--org", "a", "--key", key, "--path-policy", "a"}, want: `--path-policy: "a" is not PATTERN=OP,OP`,
		},
		"name of a path": {
			args: []string{"org", "add", "../a", "--key", key, "--orgs", t.TempDir()}, want: `"../a" is no name`,
		},
		"malformed variable": {
			env: []string{"PACKHORSE_TTL=soon"}, args: []string{"token", "--org", "a", "--key", key}, want: "PACKHORSE_TTL",
		},
		"no such file": {args: []string{"token", "--config", "absent.yaml"}, want: "absent.yaml"},
		"unknown key": {
			args: []string{"token", "--config", write(t, "c.yaml", "kye: 1\n")}, want: `no flag is named "kye"`,
		},
		"key given twice": {
			args: []string{"token", "--config", write(t, "c.yaml", "org: a\norg: b\n")}, want: "given twice",
		},
		"list for a value": {
			args: []string{"token", "--config", write(t, "c.yaml", "org: [a, b]\n")}, want: "org takes one value",
		},
		"control characters": {args: []string{"mer\x1b[2J\u202ege\xff\n"}, want: `unexpected argument mer\x1b[2J\u202ege\xff`},
		"path with control characters": {
			args: []string{"token", "--config", "grün\x1b]0;\a.yaml"}, want: `grün\x1b]0;\a.yaml: no such file`,
		},
		"mapping for a list": {
			args: []string{"token", "--config", write(t, "c.yaml", "op: {a: b}\n")}, want: "op: neither a value nor a list",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := packhorse(t, test.env, test.args...)
			if got.status != 2 || got.out != "" || !strings.Contains(got.errOut, test.want) {
				t.Errorf("got %+v, want status 2 and %q", got, test.want)
			}
			line := strings.TrimSuffix(got.errOut, "\n")
			if strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }) || !utf8.ValidString(line) {
				t.Errorf("a terminal gets %q", line)
			}
		})
	}
}
