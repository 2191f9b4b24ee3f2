//go:build unix

package main_test

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// fewServer is a server with few descriptors, and clients of it that keep their connections.
type fewServer struct {
	*packhorsetest.Server
	token string
	known []*http.Client
}

func startFew(t *testing.T, descriptors int, flags ...string) *fewServer {
	t.Helper()
	dir := t.TempDir()
	few := filepath.Join(dir, "few")
	oracle.WriteScript(t, few, fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec %q \"$@\"\n", descriptors, bin))
	s := &fewServer{Server: start(t, packhorsetest.Options{Bin: few, Dir: dir, Flags: flags})}
	s.token = create(t, s.Server, "kept")
	for range 10 {
		s.known = append(s.known, oneConnection(t))
	}
	return s
}

func oneConnection(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 1, MaxConnsPerHost: 1}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// serves wants answers to the clients that are connected, and to a new one.
func (s *fewServer) serves(t *testing.T, when string) {
	t.Helper()
	for i, client := range append(s.known, oneConnection(t)) {
		for _, path := range []string{"/api/v1/repo", "/api/v1/repos/branches"} {
			if status, text := call(t, client, "GET", s.URL+path, s.token); status != http.StatusOK {
				t.Fatalf("%s: client %d: %d %s", when, i, status, text)
			}
		}
	}
}

func (s *fewServer) dial(t *testing.T, from net.IP) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	c, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// remote is the URL for git.
func (s *fewServer) remote() string {
	return strings.Replace(s.URL, "http://", "http://t:"+s.token+"@", 1) + "/kept.git"
}

// open is the number of descriptors that the server has open.
func (s *fewServer) open(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// shrinks wants that the server closes what it has opened, up to some files.
func (s *fewServer) shrinks(t *testing.T, before int) {
	t.Helper()
	const files = 30 // that are kept open for later
	if runtime.GOOS != "linux" {
		return
	}
	for begun := time.Now(); s.open(t) > before+files; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("%d descriptors are open, %d before", s.open(t), before)
		}
	}
}

// quiet wants that nothing failed.
func (s *fewServer) quiet(t *testing.T) {
	t.Helper()
	if out := s.Output(); strings.Contains(out, "too many open files") || strings.Contains(out, "level=ERROR") {
		t.Errorf("logged\n%s", out)
	}
}

// A server with few descriptors continues to serve clients with a token, and lets others in,
// however many idle and slow connections there are, and gets its descriptors back.
// PACKHORSE_DESCRIPTORS is their number instead of 1,024.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	descriptors, err := strconv.Atoi(cmp.Or(os.Getenv("PACKHORSE_DESCRIPTORS"), "1024"))
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(descriptors) {
		t.Skipf("skipped: the test needs %d descriptors itself", descriptors)
	}
	s := startFew(t, descriptors)
	s.serves(t, "at first")
	before := s.open(t)
	stop, worked := make(chan struct{}), make(chan int)
	go func() { worked <- s.work(t, stop) }()

	// The server has fewer connections than it has descriptors, and has closed all that went before.
	all, window := descriptors*3/2, descriptors*9/10
	conns := make(chan net.Conn, window)
	for i := range all {
		from := net.IPv4(127, 0, 0, 1)
		if runtime.GOOS == "linux" && descriptors > 1024 {
			from[len(from)-1] += byte(1 + i%8) // for each address there are ports for less than 30,000
		}
		if len(conns) == window {
			_ = (<-conns).Close()
		}
		c := s.dial(t, from)
		if i%2 == 1 {
			_, _ = io.WriteString(c, "GET /api/v1/repo HTTP/1.1\r\nHost: x\r\nX-Slow: ") // it may have been closed
		}
		conns <- c
		if i%(all/15) == 0 {
			s.serves(t, fmt.Sprintf("with %d idle connections", i+1))
		}
	}
	if later := create(t, s.Server, "later"); later == "" {
		t.Error("no repository can be made")
	}
	close(stop)
	if n := <-worked; n == 0 {
		t.Error("git has done nothing")
	}
	close(conns)
	for c := range conns {
		_ = c.Close()
	}
	s.serves(t, "when they have gone")
	s.shrinks(t, before)
	s.quiet(t)
}

// work pushes and clones until stop is closed, and returns how often.
func (s *fewServer) work(t *testing.T, stop chan struct{}) (times int) {
	t.Helper()
	git := oracle.New(t)
	tree := git.Write("tree", nil)
	for ; ; times++ {
		select {
		case <-stop:
			return times
		default:
		}
		commit, err := git.Try(nil, "commit-tree", tree, "-m", strconv.Itoa(times))
		if err == nil {
			_, err = git.Try(nil, "push", "--quiet", s.remote(), fmt.Sprintf("%s:refs/heads/b%d", strings.TrimSpace(string(commit)), times))
		}
		if err == nil {
			_, err = git.Try(nil, "clone", "--quiet", "--bare", s.remote(), filepath.Join(t.TempDir(), "clone"))
		}
		if err != nil {
			t.Errorf("git, round %d: %v", times, err)
			return times
		}
	}
}
