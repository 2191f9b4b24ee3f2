package main_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"packhorse/api/auth"
	"packhorse/fuzz/loopback"
	"packhorse/fuzz/oracle"
)

// The parts of docs/drills.md that this test knows by name.
const (
	drillDisk    = "A small disk" // needs a mount
	drillFull    = "Fill the disk"
	drillUpgrade = "Upgrade"
	drillBack    = "Go back"
)

// TestDrills runs the commands of docs/drills.md in order beside a client that commits all the
// time, and looks after each part that no acknowledged commit is missing and none is there twice.
//
// PACKHORSE_UPGRADE_FROM is the revision whose binary is upgraded, or "last" for the last tag. It
// is built first, which takes a minute; without it the binary is replaced by itself.
func TestDrills(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl", "openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed", program)
		}
	}
	page := readExamples(t, "../../docs/drills.md")
	holdsStart(t, page)
	dir, installed := t.TempDir(), bin
	if revision := os.Getenv("PACKHORSE_UPGRADE_FROM"); revision != "" && !testing.Short() {
		installed = buildRevision(t, revision)
	}
	address := loopback.FreeAddress(t)
	sh, noMounts := startDrillShell(t, dir)
	sh.must(t, "LISTEN="+address, "NEW="+bin, "PATH="+filepath.Dir(installed)+":$PATH", "export PACKHORSE_MIN_FREE=4MiB")

	w := &drillWriter{t: t, url: "https://" + address, dir: dir}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel() // first, also when a part has failed
	said := &sayings{ids: make(map[string]string)}
	kept := 0 // of the commits, those that the backup before the upgrade has
	for i, block := range page.blocks {
		if noMounts != "" && (block.part == drillDisk || block.part == drillFull) {
			t.Logf("skipped: %q at %s:%d, as nothing can be mounted here: %s", block.part, page.path, block.line, noMounts)
			continue
		}
		if begins := i > 0 && page.blocks[i-1].part != block.part; begins {
			switch block.part {
			case drillUpgrade:
				kept = w.look(-1)
			case drillBack:
				cancel()
				writing.Wait()
			}
		}
		page.runBlock(t, sh, said, block)
		if ends := i+1 == len(page.blocks) || page.blocks[i+1].part != block.part; !ends {
			continue
		}
		switch block.part {
		case "", drillDisk, "Clean up":
		case "Install":
			writing.Go(func() { w.run(ctx) })
			w.waitFor(t, 3)
		case drillBack:
			t.Logf("%s: looked for %d acknowledged commits, those of the backup", block.part, w.look(kept))
		default:
			w.waitFor(t, w.count()+3) // it has gone on
			t.Logf("%s: looked for %d acknowledged commits", block.part, w.look(-1))
		}
	}
	if kept == 0 {
		t.Errorf("nothing was written before the upgrade")
	}
}

// holdsStart fails the test unless the page starts the server as the unit does.
func holdsStart(t *testing.T, page *examples) {
	t.Helper()
	unit, err := os.ReadFile("../../docs/deploy/packhorse.service")
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(unit), "\nExecStart=")
	command, _, _ = strings.Cut(command, "\n")
	command = "$D" + strings.ReplaceAll(command, " /", " $D/")
	if !slices.ContainsFunc(page.blocks, func(b exampleBlock) bool { return strings.Contains(b.text, command+" ") }) {
		t.Errorf("%s does not start the server by %q", page.path, command)
	}
}

// buildRevision builds the binary of a revision of this repository.
func buildRevision(t *testing.T, revision string) string {
	t.Helper()
	script := `set -eu; cd ../..
[ "$1" != last ] || set -- "$(git describe --tags --abbrev=0)" "$2"
git archive "$1" | tar -x -C "$2"
cd "$2" && go build -o packhorse ./cmd/packhorse`
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", script, "build", revision, dir).
		CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("fatal: ")) {
			t.Skipf("skipped: %s is not in this clone: %s", revision, out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "packhorse")
}

// startDrillShell starts a shell that ends with the test, with all that it has started. It has its
// own mounts, which end with it, if the machine allows that; otherwise noMounts says why not.
func startDrillShell(t *testing.T, dir string) (sh *pageShell, noMounts string) {
	t.Helper()
	var command []string
	for _, own := range [][]string{{"unshare", "--mount"}, {"unshare", "--map-root-user", "--mount"}} {
		probe := exec.Command(own[0], append(own[1:], "mount", "-t", "tmpfs", "tmpfs", dir)...)
		out, err := probe.CombinedOutput()
		if err == nil {
			command, noMounts = own, ""
			break
		}
		noMounts = fmt.Sprintf("%s: %v: %s", strings.Join(own, " "), err, bytes.TrimSpace(out))
	}
	return startGroupShell(t, dir, command...), noMounts
}

// startGroupShell starts a shell, by a command if one is given, that ends with the test, with all
// that it has started. A test that fails prints server.log in the folder.
func startGroupShell(t *testing.T, dir string, command ...string) *pageShell {
	t.Helper()
	command = append(command, "bash")
	cmd := exec.Command(command[0], command[1:]...) // ended below
	cmd.Dir, cmd.Env = dir, oracle.EnvOutside(dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // it may have ended
	watch := time.AfterFunc(5*time.Minute, end)                           // a step that never ends
	t.Cleanup(func() {
		watch.Stop()
		end()
		_ = cmd.Wait() // killed
		if t.Failed() {
			log, err := os.ReadFile(filepath.Join(dir, "server.log"))
			t.Logf("%v\n%s", err, regexp.MustCompile("(?m)^.* msg=request .*\n").ReplaceAll(log, nil))
		}
	})
	sh := &pageShell{&commandShell{in, bufio.NewReader(out)}, dir}
	sh.prepare(t)
	return sh
}

// drillWriter commits to a branch, each commit under a key, and repeats what fails as
// docs/quickstart.md says.
type drillWriter struct {
	t   *testing.T
	url string
	dir string

	mu       sync.Mutex
	answered []string // guarded by mu: the ids of the commits that were acknowledged
}

func (w *drillWriter) run(ctx context.Context) {
	for number := 0; ctx.Err() == nil; {
		if w.write(ctx, fmt.Sprint("writer-", number)) {
			number++
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond): // leave the processors to the drill
		}
	}
}

// write sends a commit and reports whether it was acknowledged.
func (w *drillWriter) write(ctx context.Context, name string) bool {
	status, body, err := w.send(ctx, http.MethodPost, "/api/v1/repos/commit-pack", name, commitPack("writer", "main", name))
	switch {
	case err != nil, status == http.StatusServiceUnavailable, status == http.StatusInsufficientStorage:
		return false
	case status == http.StatusUnauthorized: // between the removal of a key and the next look at the new one
		return false
	case status != http.StatusCreated:
		w.t.Errorf("commit %s: %d %s", name, status, body)
		return false
	}
	var done struct {
		Commit struct {
			SHA string `json:"commit_sha"`
		}
	}
	if err := json.Unmarshal(body, &done); err != nil {
		w.t.Errorf("commit %s: %v", name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = append(w.answered, done.Commit.SHA)
	return true
}

// send makes a request with the key and the certificate that are in force.
func (w *drillWriter) send(ctx context.Context, method, path, key string, body []byte) (int, []byte, error) {
	private, err := os.ReadFile(filepath.Join(w.dir, "acme-private.pem"))
	if err != nil {
		return 0, nil, err
	}
	now := time.Now()
	token, err := auth.Mint(private, auth.Claims{
		Org: "acme", Repo: "web/site", Scopes: []string{"git:write"}, IssuedAt: now, Expires: now.Add(time.Minute),
	})
	if err != nil {
		return 0, nil, err
	}
	certificate, err := os.ReadFile(filepath.Join(w.dir, "server", "etc", "packhorse", "cert.pem"))
	if err != nil {
		return 0, nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, method, w.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	request.Header.Set("Idempotency-Key", key)
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

func (w *drillWriter) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.answered)
}

// waitFor waits until so many commits are acknowledged.
func (w *drillWriter) waitFor(t *testing.T, count int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); w.count() < count; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d commits were acknowledged, and no more", w.count())
		}
	}
}

// look lists the branch, and fails the test unless the first commits that were acknowledged, or all
// for -1, are there, and each commit once. It returns how many of them it has looked for.
func (w *drillWriter) look(first int) int {
	w.t.Helper()
	if first < 0 {
		first = w.count()
	}
	there, subjects, cursor := make(map[string]bool), make(map[string]bool), ""
	for more := true; more; {
		status, body, err := w.send(w.t.Context(), http.MethodGet, "/api/v1/repos/commits?ref=writer&limit=100&cursor="+cursor, "", nil)
		var list struct {
			Commits    []struct{ SHA, Message string }
			NextCursor string `json:"next_cursor"`
			HasMore    bool   `json:"has_more"`
		}
		if err == nil {
			err = json.Unmarshal(body, &list)
		}
		if err != nil || status != http.StatusOK {
			w.t.Fatalf("list commits: %d, %v: %s", status, err, body)
		}
		for _, one := range list.Commits {
			if strings.HasPrefix(one.Message, "writer-") && subjects[one.Message] {
				w.t.Errorf("%s is there twice", one.Message)
			}
			there[one.SHA], subjects[one.Message] = true, true
		}
		cursor, more = list.NextCursor, list.HasMore
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, id := range w.answered[:first] {
		if !there[id] {
			w.t.Errorf("commit %d, which was acknowledged as %s, is missing", i, id)
		}
	}
	return first
}
