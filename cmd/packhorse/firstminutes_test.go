package main_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"packhorse/fuzz/oracle"
)

// TestFirstMinutes begins as a newcomer does, if PACKHORSE_DIST is set: with a clone and an empty
// build cache, or with a tarball. It opens the console, pastes the lines, and logs how long it took
// to come there.
func TestFirstMinutes(t *testing.T) {
	if os.Getenv("PACKHORSE_DIST") == "" {
		t.Skip("PACKHORSE_DIST is not set")
	}
	t.Run("clone", func(t *testing.T) {
		sources, err := filepath.Abs("../..")
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "packhorse")
		began := time.Now()
		oracle.New(t).Git("clone", "--quiet", sources, dir)
		start := exec.Command("make", "run", "LISTEN=127.0.0.1:0")
		start.Dir, start.Env = dir, append(os.Environ(), "GOCACHE="+filepath.Join(t.TempDir(), "cache"))
		begin(t, began, filepath.Join(dir, ".data"), start)
	})
	t.Run("tarball", func(t *testing.T) {
		dir := t.TempDir()
		made := exec.Command("go", "run", "./cmd/dist", "-platforms", runtime.GOOS+"/"+runtime.GOARCH, "-version", "v1.2.3", "-out", dir)
		made.Dir = "../.."
		if out, err := made.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
		if err != nil || len(found) != 1 {
			t.Fatalf("the tarballs are %q, %v", found, err)
		}
		began := time.Now()
		shell(t, dir, "tar -xzf "+found[0])
		start := exec.Command("./packhorse", "dev", "--listen", "127.0.0.1:0")
		start.Dir = strings.TrimSuffix(found[0], ".tar.gz")
		begin(t, began, filepath.Join(start.Dir, "packhorse-data"), start)
	})
}

// begin starts dev by a command, and uses the server.
func begin(t *testing.T, began time.Time, data string, start *exec.Cmd) {
	t.Helper()
	lines := linesToPaste(t, start)
	t.Logf("serves after %.1f s", time.Since(began).Seconds())
	_, rest, _ := strings.Cut(lines, "export PACKHORSE=")
	address, _, _ := strings.Cut(rest, "\n")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/console", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	page, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := page.Body.Close(); err != nil || page.StatusCode != http.StatusOK {
		t.Errorf("the console: %s, %v", page.Status, err)
	}
	tryDev(t, data, lines)
	t.Logf("the console, a push and a commit after %.1f s", time.Since(began).Seconds())
}
