//go:build unix

package main_test

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

func (s *fewServer) dial(t *testing.T) net.Conn {
	t.Helper()
	var dialer net.Dialer
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

// holder is a process with idle and slow connections to a server: together they are more than one
// process may have.
type holder struct {
	cmd   *exec.Cmd
	count int
	held  *bufio.Scanner // of the numbers of connections that it has reached
	more  io.WriteCloser // takes a line for each of them
}

// holdEnv makes the test binary a holder: "host:port count".
const holdEnv = "PACKHORSE_TEST_HOLD"

// holdSteps is how often a holder waits before it has all of its connections.
const holdSteps = 8

func (s *fewServer) newHolder(t *testing.T, count int) *holder {
	t.Helper()
	h := &holder{cmd: exec.CommandContext(t.Context(), os.Args[0]), count: count}
	h.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", holdEnv, strings.TrimPrefix(s.URL, "http://"), count))
	h.cmd.Stderr = t.Output()
	held, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if h.more, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.held = bufio.NewScanner(held)
	return h
}

// wait returns how many connections the holder has.
func (h *holder) wait(t *testing.T) int {
	t.Helper()
	if !h.held.Scan() {
		t.Fatalf("the holder has ended: %v", errors.Join(h.held.Err(), h.cmd.Wait()))
	}
	held, err := strconv.Atoi(h.held.Text())
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func (h *holder) goOn(t *testing.T) int {
	t.Helper()
	if _, err := io.WriteString(h.more, "\n"); err != nil {
		t.Fatal(err)
	}
	return h.wait(t)
}

// close ends all connections.
func (h *holder) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(h.more.Close(), h.cmd.Wait()); err != nil {
		t.Error(err)
	}
}

// holdConnections is the holder's process. Every other connection has sent half a header.
func holdConnections(spec string) (status int) {
	var address string
	var count int
	if _, err := fmt.Sscan(spec, &address, &count); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	more := bufio.NewScanner(os.Stdin)
	conns := make([]net.Conn, 0, count)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for len(conns) < count {
		from := net.IPv4(127, 0, 0, 1)
		if runtime.GOOS == "linux" && count > 1024 {
			from[len(from)-1] += byte(1 + len(conns)%8) // for each address there are ports for less than 30,000
		}
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
		c, err := dialer.Dial("tcp", address)
		if err != nil {
			fmt.Fprintf(os.Stderr, "connection %d: %v\n", len(conns), err)
			return 1
		}
		if conns = append(conns, c); len(conns)%2 == 0 {
			_, _ = io.WriteString(c, "GET /api/v1/repo HTTP/1.1\r\nHost: x\r\nX-Slow: ") // it may have been closed
		}
		if len(conns)%(count/holdSteps) == 0 || len(conns) == count {
			fmt.Println(len(conns))
			if !more.Scan() {
				return 0
			}
		}
	}
	return 0
}

// A server with few descriptors continues to serve clients with a token, and lets others in,
// however many idle and slow connections are kept, half as many again as it has descriptors. It
// gets these back. PACKHORSE_DESCRIPTORS is their number instead of 1,024.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	descriptors, err := strconv.Atoi(cmp.Or(os.Getenv("PACKHORSE_DESCRIPTORS"), "1024"))
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Max < uint64(descriptors) {
		t.Skipf("skipped: a process may have %d descriptors, not %d", limit.Max, descriptors)
	}
	s := startFew(t, descriptors)
	s.serves(t, "at first")
	before := s.open(t)
	stop, worked := make(chan struct{}), make(chan int)
	go func() { worked <- s.work(t, stop) }()

	// Nobody but the server closes any of them.
	var holders []*holder
	for range 2 {
		h := s.newHolder(t, descriptors*3/4)
		holders = append(holders, h)
		for held := h.wait(t); ; held = h.goOn(t) {
			s.serves(t, fmt.Sprintf("with holder %d of %d connections", len(holders), held))
			if held == h.count {
				break
			}
		}
	}
	if runtime.GOOS == "linux" {
		open := s.open(t)
		t.Logf("%d of %d descriptors are open", open, descriptors)
		if open < descriptors/4 {
			t.Errorf("%d of %d descriptors are open: the test is about few", open, descriptors)
		}
	}
	if later := create(t, s.Server, "later"); later == "" {
		t.Error("no repository can be made")
	}
	close(stop)
	if n := <-worked; n == 0 {
		t.Error("git has done nothing")
	}
	for _, h := range holders {
		h.close(t)
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

// uploadedFile is one content of a commit.
type uploadedFile struct {
	id   string
	data []byte
	more bool // the content has not ended
}

// commitBody is the body of a commit to a branch.
func commitBody(branch string, contents ...uploadedFile) string {
	var files, chunks []string
	for _, c := range contents {
		files = append(files, fmt.Sprintf(`{"path": %q, "content_id": %q}`, c.id, c.id))
		chunks = append(chunks, fmt.Sprintf(`{"blob_chunk": {"content_id": %q, "data": %q, "eof": %t}}`, c.id,
			base64.StdEncoding.EncodeToString(c.data), !c.more))
	}
	return fmt.Sprintf(`{"metadata": {"target_branch": %q, "commit_message": "m", `+
		`"author": {"name": "A", "email": "a@example.com"}, "files": [%s]}}`, branch, strings.Join(files, ", ")) + "\n" +
		strings.Join(chunks, "\n") + "\n"
}

// commits commits a content and returns the answer.
func (s *fewServer) commits(client *http.Client, content []byte) (status int, text string, err error) {
	request, err := http.NewRequest(http.MethodPost, s.URL+"/api/v1/repos/commit-pack",
		strings.NewReader(commitBody("main", uploadedFile{id: "a", data: content})))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), errors.Join(err, response.Body.Close())
}

// Uploads take files until no more may be written: those beyond get 503 with the reason. The others
// go on, and so do reads, small writes, and the logs of the key-value store.
func TestUploadsOfFewDescriptors(t *testing.T) {
	t.Parallel()
	const held = 64 // each takes two of the 128 files that may be written at a time
	s := startFew(t, 1024, "--memory", "16GiB", "--connections", "800")
	s.serves(t, "at first")
	before := s.open(t)
	noise := make([]byte, 600<<10)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise)
	body := commitBody("main", uploadedFile{id: "a", data: noise[:160<<10]}, uploadedFile{id: "b", data: noise, more: true})
	var answered, refused atomic.Int64
	var conns []net.Conn
	var waiting sync.WaitGroup
	hangUp := func() {
		for _, c := range conns {
			_ = c.Close()
		}
		waiting.Wait()
	}
	defer hangUp()
	upload := func() {
		c := s.dial(t)
		conns = append(conns, c)
		waiting.Go(func() {
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return // it was closed
			}
			answered.Add(1)
			defer response.Body.Close() //nolint:errcheck // it was only read
			var told struct{ Code, Error string }
			err = json.NewDecoder(response.Body).Decode(&told)
			if response.StatusCode == http.StatusServiceUnavailable && told.Code == "busy" &&
				strings.Contains(told.Error, "too many files") && response.Header.Get("Retry-After") != "" {
				refused.Add(1)
				return
			}
			t.Errorf("an upload: %d %+v, %v", response.StatusCode, told, err)
		})
		_, _ = fmt.Fprintf(c, "POST /api/v1/repos/commit-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", s.token, len(body)+100, body)
	}
	for range held + 8 {
		upload()
	}
	// An upload that gets one file, and no second, is refused, and gives its file back a moment later:
	// others may be refused meanwhile, so that there are too few.
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if time.Since(begun) > time.Minute || t.Failed() {
			t.Fatalf("%d of %d uploads were answered, %d of them refused", answered.Load(), len(conns), refused.Load())
		}
		if len(conns)-int(answered.Load()) < held {
			upload()
			continue
		}
		_, _ = random.Read(noise)
		status, text, err := s.commits(s.known[0], noise)
		if status == http.StatusServiceUnavailable && len(conns)-int(answered.Load()) == held {
			break
		}
		t.Logf("a large commit: %d %s, %v", status, text, err)
	}
	for range 900 { // the remaining connections, and more
		c := s.dial(t)
		defer c.Close() //nolint:errcheck // nothing was written
	}
	s.serves(t, "among uploads")
	for i := range 40 { // of 100 KiB, which are no files, and which logs are begun for
		_, _ = random.Read(noise[:100<<10])
		if status, text, err := s.commits(s.known[i%len(s.known)], noise[:100<<10]); status != http.StatusOK &&
			status != http.StatusCreated {
			t.Fatalf("a small commit: %d %s, %v", status, text, err)
		}
	}
	if status, text, err := s.commits(s.known[0], noise); status != http.StatusServiceUnavailable {
		t.Errorf("another large commit: %d %s, %v", status, text, err)
	}
	s.serves(t, "after small commits")
	hangUp()
	if n := int(answered.Load()); len(conns)-n != held || int(refused.Load()) != n {
		t.Errorf("%d of %d uploads were answered, %d of them refused", n, len(conns), refused.Load())
	}
	s.shrinks(t, before)
	if status, text, err := s.commits(s.known[0], noise); status != http.StatusOK && status != http.StatusCreated {
		t.Errorf("a large commit when the others have gone: %d %s, %v", status, text, err)
	}
	s.quiet(t)
}
