package main_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

// start runs a server until the test ends, unless the test stops it itself.
func start(t *testing.T, options packhorsetest.Options) *packhorsetest.Server {
	t.Helper()
	if options.Bin == "" {
		options.Bin = bin
	}
	if options.Dir == "" {
		options.Dir = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := packhorsetest.Start(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(server.Output())
		}
	})
	return server
}

// call sends a request without a body and returns status and body.
func call(t *testing.T, client *http.Client, method, url, token string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// create makes a repository and returns a token for it.
func create(t *testing.T, server *packhorsetest.Server, repo string) string {
	t.Helper()
	return createWith(t, http.DefaultClient, server, repo)
}

// createWith is create over a client.
func createWith(t *testing.T, client *http.Client, server *packhorsetest.Server, repo string) string {
	t.Helper()
	token, err := server.Token(t.Context(), repo, "--scope", "repo:write,git:write")
	if err != nil {
		t.Fatal(err)
	}
	if status, text := call(
		t, client, "POST", server.URL+"/api/v1/repos", token,
	); status != http.StatusCreated {
		t.Fatalf("create %s: %d %s", repo, status, text)
	}
	return token
}

func TestServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := start(t, packhorsetest.Options{Dir: dir, Flags: []string{"--log-level", "info"}})
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n", "/metrics": "# TYPE "} {
		if status, text := call(t, http.DefaultClient, "GET", server.URL+path, ""); status != http.StatusOK ||
			!strings.Contains(text, want) {
			t.Errorf("GET %s: %d %.200q", path, status, text)
		}
	}
	token := create(t, server, "kept")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, told := range []string{"msg=limits", "memory=", "pack=16GiB", "msg=stopping", "msg=stopped"} {
		if !strings.Contains(server.Output(), told) {
			t.Errorf("the log does not tell %q", told)
		}
	}
	if strings.Contains(server.Output(), token) {
		t.Error("the log tells a token")
	}

	server = start(t, packhorsetest.Options{Dir: dir})
	if status, text := call(t, http.DefaultClient, "GET", server.URL+"/api/v1/repo", token); status != http.StatusOK {
		t.Errorf("the repository after a restart: %d %s", status, text)
	}
	if err := server.Kill(); err != nil { // as a crash does: the socket stays
		t.Fatal(err)
	}
	server = start(t, packhorsetest.Options{Dir: dir})
	if status, text := call(t, http.DefaultClient, "GET", server.URL+"/api/v1/repo", token); status != http.StatusOK {
		t.Errorf("the repository after a crash: %d %s", status, text)
	}
}

// TestServeDrains checks that a running request gets its answer when the server is stopped.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{Flags: []string{"--log-level", "info"}})
	token := create(t, server, "drained")
	body, feed := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/api/v1/repos/commit-pack", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	// The body is not read before the server has asked for it, and so is at work.
	request.Header.Set("Expect", "100-continue")
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer transport.CloseIdleConnections()
	type answer struct {
		status int
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		response, err := transport.RoundTrip(request)
		if err != nil {
			answered <- answer{err: err}
			return
		}
		answered <- answer{response.StatusCode, response.Body.Close()}
	}()
	metadata := `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"A","email":"a@example.com"},"files":[{"path":"f","content_id":"1"}]}}`
	if _, err := io.WriteString(feed, metadata+"\n"); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop() }()
	for !strings.Contains(server.Output(), "msg=stopping") {
		select {
		case err := <-stopped:
			t.Fatalf("stopped with a request under way: %v", err)
		case got := <-answered:
			t.Fatalf("answered before the body has ended: %+v", got)
		case <-time.After(time.Millisecond):
		}
	}
	if _, err := io.WriteString(feed, `{"blob_chunk":{"content_id":"1","data":"YQ==","eof":true}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; got.err != nil || got.status != http.StatusCreated {
		t.Errorf("the request that was under way: %+v", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestServeTLS(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{TLS: true})
	client := trusting(t, server)
	if status, text := call(t, client, "GET", server.URL+"/healthz", ""); !strings.HasPrefix(server.URL, "https://") ||
		status != http.StatusOK {
		t.Errorf("GET %s/healthz: %d %s", server.URL, status, text)
	}
}

// trusting returns a client that trusts the certificate of a server.
func trusting(t *testing.T, server *packhorsetest.Server) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(server.CACert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// TestServeReloads checks that SIGHUP ends nothing, and that the server takes a new certificate and
// log level.
func TestServeReloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("log-level: warn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reloaded := make(chan string, 1)
	server := start(t, packhorsetest.Options{
		Dir: dir, TLS: true, Config: config,
		Log: func(line string) {
			if strings.Contains(line, "msg=reloaded") {
				reloaded <- line
			}
		},
	})
	before := leafOf(t, server)
	if err := os.WriteFile(config, []byte("log-level: info\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.NewCertificate(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(server.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if line := <-reloaded; !strings.Contains(line, "log_level=INFO") {
		t.Errorf("logged %s", line)
	}
	if after := leafOf(t, server); after.Equal(before) {
		t.Error("the certificate is the old one")
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
}

// leafOf returns the certificate that a server shows.
func leafOf(t *testing.T, server *packhorsetest.Server) *x509.Certificate {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // the test compares the certificate itself
	c, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0] // a TLS dialer makes nothing else
}

// TestServeDrainDelay checks that a stopping server reports it, and continues to serve until its
// load balancer had time to notice.
func TestServeDrainDelay(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{Flags: []string{"--drain-delay", "1h"}})
	token := create(t, server, "drained")
	if err := syscall.Kill(server.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		status, text := call(t, http.DefaultClient, "GET", server.URL+"/readyz", "")
		if status == http.StatusServiceUnavailable && text == "draining\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a minute later: %d %s", status, text)
		}
	}
	client := &http.Client{Transport: &http.Transport{}} // a connection of its own
	if status, text := call(t, client, "GET", server.URL+"/api/v1/repo", token); status != http.StatusOK {
		t.Errorf("a new connection: %d %s", status, text)
	}

	server = start(t, packhorsetest.Options{Flags: []string{"--drain-delay", "10ms"}})
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
}

func TestServeAdminListen(t *testing.T) {
	t.Parallel()
	admin := make(chan string, 1)
	server := start(t, packhorsetest.Options{
		Flags: []string{"--admin-listen", "127.0.0.1:0", "--log-level", "info"},
		Log:   urlAfter("serving metrics and profiles", admin),
	})
	url := <-admin // logged before the server is ready
	if status, _ := call(t, http.DefaultClient, "GET", server.URL+"/metrics", ""); status != http.StatusNotFound {
		t.Errorf("metrics on the public listener: %d", status)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/heap"} {
		if status, text := call(t, http.DefaultClient, "GET", url+path, ""); status != http.StatusOK {
			t.Errorf("%s on the admin listener: %d %.100s", path, status, text)
		}
	}
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	server := start(t, packhorsetest.Options{})
	orgs, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
	tests := map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no address": {[]string{"--data", data, "--orgs", orgs}, 2, "--listen"},
		"a taken port": {
			[]string{"--data", data, "--orgs", orgs, "--listen", strings.TrimPrefix(server.URL, "http://")},
			2,
			"address already in use; choose another one with --listen",
		},
		"half of TLS": {
			[]string{"--data", data, "--orgs", orgs, "--listen", ":0", "--tls-cert", write(t, "c.pem", "")}, 2, "go together",
		},
		"no organizations": {
			[]string{"--data", data, "--orgs", filepath.Join(orgs, "absent"), "--listen", ":0"}, 2, "absent",
		},
		"a size without sense": {
			[]string{"--data", data, "--orgs", orgs, "--listen", ":0", "--memory", "much"}, 2, "is not a size",
		},
		"a level without name": {
			[]string{"--data", data, "--orgs", orgs, "--listen", ":0", "--log-level", "loud"}, 2, "--log-level",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := packhorse(t, nil, append([]string{"serve"}, test.args...)...)
			if got.status != test.status || !strings.Contains(got.errOut, test.want) {
				t.Errorf("got %+v, want status %d and %q", got, test.status, test.want)
			}
		})
	}
}

func TestOneServerAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, packhorsetest.Options{Dir: dir})
	got := packhorse(t, nil, "serve", "--data", filepath.Join(dir, "data"), "--orgs", filepath.Join(dir, "orgs"),
		"--listen", "127.0.0.1:0")
	if got.status != 2 || !strings.Contains(got.errOut, "is in use by another packhorse") {
		t.Errorf("a second server: %+v", got)
	}
	// Without its socket the server cannot be asked, and the folder cannot be opened beside it.
	if err := os.Remove(filepath.Join(dir, "data", "admin.sock")); err != nil {
		t.Fatal(err)
	}
	got = packhorse(t, nil, "fsck", "--data", filepath.Join(dir, "data"))
	if got.status != 2 || !strings.Contains(got.errOut, "is in use by another packhorse that does not answer") {
		t.Errorf("fsck beside a server without a socket: %+v", got)
	}
}
