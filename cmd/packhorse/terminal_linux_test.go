package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// onTerminal runs the binary on a terminal of 100 columns, and returns what that has shown. seen is
// called with all that it has shown so far, again and again.
func onTerminal(t *testing.T, seen func(shown string), args ...string) string {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("skipped: no terminals here: %v", err)
	}
	defer func() { _ = terminal.Close() }()
	fd := int(terminal.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	output, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("skipped: no terminals here: %v", err)
	}
	cmd := exec.Command(bin, args...)
	cmd.Stdout = output
	err = cmd.Start()
	_ = output.Close() // the process has its own; when it ends, reading does
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for buf := make([]byte, 4096); ; {
		n, err := terminal.Read(buf)
		shown.Write(buf[:n])
		if err != nil {
			break
		}
		seen(shown.String())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%q: %v\n%s", args, err, shown.String())
	}
	return shown.String()
}

// TestTerminal sees bars while a push is held up, and tables.
func TestTerminal(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{})
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
			<-held
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	repo := oracle.NewAt(t, filepath.Join(t.TempDir(), "site.git"))
	repo.Seed(oracle.History{Seed: 3, Commits: 5})
	args := append(append([]string{"import"}, apiArgs(server, proxy.URL)...), repo.Dir)
	bars := 0
	shown := onTerminal(t, func(shown string) {
		if bars = strings.Count(shown, " B site\r\n") + strings.Count(shown, " KiB site\r\n"); bars > 1 {
			release()
		}
	}, args...)
	end := shown[strings.LastIndex(shown, "\x1b[J")+len("\x1b[J"):]
	if bars < 2 || !strings.Contains(shown, "imported site, ") || !strings.HasPrefix(end, "imported site, ") ||
		!strings.Contains(end, "1 repository: 1 imported") {
		t.Errorf("%d bars; the terminal has shown %q", bars, shown)
	}
	list := onTerminal(t, func(string) {}, append([]string{"repos", "list"}, apiArgs(server, server.URL)...)...)
	if !strings.HasPrefix(list, "NAME  DEFAULT BRANCH  CREATED") || !strings.Contains(list, "\r\nsite  main ") {
		t.Errorf("the terminal has shown %q", list)
	}
	if show := onTerminal(t, func(string) {}, append(append([]string{"repos", "show"}, apiArgs(server, server.URL)...), "site")...); !strings.HasPrefix(show, "name                    site\r\n") {
		t.Errorf("the terminal has shown %q", show)
	}
}
