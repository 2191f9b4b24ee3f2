package main_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"packhorse/fuzz/oracle"
)

// TestDev starts packhorse dev, pastes its output into a shell, and checks the effects.
func TestDev(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	tryDev(t, data, dev(t, data))
	for path, mode := range map[string]os.FileMode{
		data: 0o700, filepath.Join(data, "dev.key"): 0o600, data + ".secret-key": 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want mode %v", path, info, err, mode)
		}
	}
}

// TestDevTLS does the same over HTTPS, by the name that --public-url gives the server: git and curl
// trust its certificate.
func TestDevTLS(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("curl", "--version").Output(); err == nil && !strings.Contains(string(out), "https") {
		t.Skip("skipped: this curl knows no HTTPS")
	}
	data := filepath.Join(t.TempDir(), "data")
	lines := dev(t, data, "--tls")
	if !strings.Contains(lines, "export PACKHORSE=https://127.0.0.1:") ||
		!strings.Contains(lines, "NODE_EXTRA_CA_CERTS="+data+"/tls/ca.pem") {
		t.Errorf("printed\n%s", lines)
	}
	tryDev(t, data, lines)
}

// TestDevPublicURL checks the output of dev for a server with another public name, and on all
// addresses.
func TestDevPublicURL(t *testing.T) {
	t.Parallel()
	lines := dev(t, filepath.Join(t.TempDir(), "data"), "--public-url", "https://git.example.com/")
	for _, want := range []string{
		"export PACKHORSE=https://git.example.com\n", " https://t:$TOKEN@git.example.com/demo.git",
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("printed\n%swant %q", lines, want)
		}
	}
	lines = dev(t, filepath.Join(t.TempDir(), "data"), "--listen", "[::]:0")
	if !strings.Contains(lines, "export PACKHORSE=http://127.0.0.1:") {
		t.Errorf("on all addresses: printed\n%s", lines)
	}
	if got := packhorse(t, nil, "dev", "--data", t.TempDir(), "--public-url", "git.example.com"); got.status != 2 ||
		!strings.Contains(got.errOut, "--public-url") {
		t.Errorf("no URL: %+v", got)
	}
}

// TestDevDemo pastes the output of dev --demo, and wants the same repository after a second start
// and of another server.
func TestDevDemo(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	var first, firstHead string
	for i, folder := range []string{data, data, filepath.Join(t.TempDir(), "other")} {
		t.Run("", func(t *testing.T) {
			lines := dev(t, folder, "--demo")
			work := t.TempDir()
			shell(t, work, "git init -q -b trunk && git commit -q --allow-empty -m first")
			if i == 1 { // what is there stays as it is
				lines, _, _ = strings.Cut(lines, "# ask what")
			}
			out := shell(t, work, lines)
			refs := shell(t, work, "git -C packhorse-demo ls-remote origin")
			head := shell(t, work, "git -C packhorse-demo rev-parse --symbolic-full-name HEAD")
			if i == 0 {
				first, firstHead = refs, head
			}
			if refs != first || head != firstHead || !strings.Contains(refs, "refs/heads/strong-tea") || head != "refs/heads/main\n" {
				t.Errorf("start %d: the refs are\n%s%s", i, refs, head)
			}
			if i == 1 {
				return
			}
			for _, want := range []string{
				"kettle 1.0.0", "Release notes are in CHANGELOG.md", `"status":"conflicted"`, `"status":"clean"`, `"data/teas.csv"`, `"preview_token"`, "--silent",
				`"original_path":"kettle.py"`, `"url":"mine"`, `"success":true`, "Hello from the API.", `"url":"second"`,
			} {
				if !strings.Contains(out, want) {
					t.Errorf("pasting the lines does not print %q:\n%s", want, out)
				}
			}
		})
	}
}

// tryDev pastes the output of dev.
func tryDev(t *testing.T, data, lines string) {
	t.Helper()
	work := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		return shell(t, work, "git "+strings.Join(args, " "))
	}
	git("init", "-q", "-b", "trunk")
	git("commit", "-q", "--allow-empty", "-m", "first")
	out := shell(t, work, lines)
	for _, want := range []string{
		`"url":"demo"`, `"success":true`, `"paths":["HELLO.txt"]`, "Hello from the API.", `"url":"second"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("pasting the lines does not print %q:\n%s", want, out)
		}
	}
	// Upstreams on this machine are taken.
	export, _, _ := strings.Cut(lines, "\n\n")
	mirror := shell(t, work, export+"\nTHIRD=$("+bin+" token --org dev --key "+filepath.Join(data, "dev.key")+
		" --repo third --scope repo:write)\n"+
		`curl -sS -X POST -H "Authorization: Bearer $THIRD" $PACKHORSE/api/v1/repos `+
		`-d '{"base_repo":{"provider":"gitea","owner":"o","name":"n","upstream_host":"127.0.0.1:9"}}'`+"\n")
	if !strings.Contains(mirror, `"url":"third"`) {
		t.Errorf("a repository with an upstream on this machine: %s", mirror)
	}
	if log := git("-C", "packhorse-demo", "log", "--format=%s"); log != "Say hello\nfirst\n" {
		t.Errorf("log of the clone %q", log)
	}
}

// TestDevWebhook checks that dev delivers to a webhook on this machine.
func TestDevWebhook(t *testing.T) {
	t.Parallel()
	delivered := make(chan string, 100) // more than the lines to paste push
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		delivered <- string(body)
	}))
	t.Cleanup(receiver.Close)
	data := filepath.Join(t.TempDir(), "data")
	folder := filepath.Join(data, "orgs", "dev")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	config := "webhooks: [{url: '" + receiver.URL + "', secret: hush}]\n"
	if err := os.WriteFile(filepath.Join(folder, "org.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := dev(t, data)
	work := t.TempDir()
	shell(t, work, "git init -q -b trunk && git commit -q --allow-empty -m first")
	shell(t, work, lines)
	select {
	case body := <-delivered:
		if !strings.Contains(body, `"demo"`) {
			t.Errorf("delivered %s", body)
		}
	case <-time.After(time.Minute):
		t.Error("nothing was delivered")
	}
}

// TestDevAgain checks that a second start uses the files of the first one.
func TestDevAgain(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	files := []string{filepath.Join(data, "dev.key"), data + ".secret-key"}
	var first [][]byte
	for range 2 {
		t.Run("", func(t *testing.T) {
			dev(t, data)
			var contents [][]byte
			for _, name := range files {
				content, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				contents = append(contents, content)
			}
			for i := range first {
				if !bytes.Equal(contents[i], first[i]) {
					t.Errorf("%s was made again", files[i])
				}
			}
			first = contents
		})
	}
	keys, err := filepath.Glob(filepath.Join(data, "orgs", "dev", "*.pem"))
	if err != nil || len(keys) != 1 {
		t.Errorf("registered keys %q, %v", keys, err)
	}
}

// dev runs packhorse dev until the test ends, and returns the lines to paste.
func dev(t *testing.T, data string, flags ...string) string {
	t.Helper()
	args := append([]string{"dev", "--data", data, "--listen", "127.0.0.1:0", "--min-free", "1MiB"}, flags...)
	return linesToPaste(t, exec.Command(bin, args...))
}

// linesToPaste starts a command that starts dev, and returns the lines to paste that dev prints.
func linesToPaste(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, stdout); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil && filepath.Base(cmd.Path) != "make" { // make fails when it is interrupted
			t.Errorf("%s: %v\n%s", cmd, err, log.String())
		}
		if strings.Contains(log.String(), "level=INFO") {
			t.Errorf("the lines to paste are buried:\n%s", log.String())
		}
	})
	const dashes = "----"
	var paste strings.Builder
	inside := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		switch {
		case lines.Text() != dashes && inside:
			paste.WriteString(lines.Text() + "\n")
		case lines.Text() == dashes && inside:
			return paste.String()
		case lines.Text() == dashes:
			inside = true
		}
	}
	t.Fatalf("%s printed nothing to paste", cmd)
	return ""
}

// shell runs lines in a folder, each of which must succeed, and returns their output.
func shell(t *testing.T, dir, lines string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil && strings.Contains(lines, "curl") {
		t.Skip("skipped: curl is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", lines)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = oracle.EnvOutside(dir)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), complaints.String())
	}
	return out.String()
}

// TestReadme holds the lines to paste in README.md against those that dev prints.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(string(page), "```sh\n")
	lines, _, ok := strings.Cut(lines, "```\n")
	if !ok {
		t.Fatal("README.md has no lines to paste")
	}
	printed := dev(t, filepath.Join(t.TempDir(), "data"))
	url, _, _ := strings.Cut(strings.TrimPrefix(printed, "export PACKHORSE=http://"), "\n")
	token := regexp.MustCompile(`(?m)^export TOKEN=.*$`)
	want := token.ReplaceAllString(strings.ReplaceAll(lines, "127.0.0.1:8080", url), "export TOKEN=")
	if got := token.ReplaceAllString(printed, "export TOKEN="); !strings.HasPrefix(got, want) {
		t.Errorf("README.md has\n%sand dev prints\n%s", want, got)
	}
}
