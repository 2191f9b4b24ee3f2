// Package s3test runs an S3 service for tests: versitygw over a temporary folder.
//
// Start at [Start], or at [Shared] for one service of all tests of a binary. The program is taken
// from PATH or from .cache/bin of the repository, where .ci/run installs it. PACKHORSE_TEST_FILES
// may name a bucket of another service instead, as s3.ParseLocation reads it; its credentials are
// then those that the tools of Amazon find. Tests are skipped where neither is there.
package s3test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"packhorse/odb/file/s3"
)

const (
	program   = "versitygw"
	bucket    = "tests"
	accessKey = "packhorse"
	secretKey = "packhorse-secret"
)

// Server is a running service. Its methods may be called concurrently.
type Server struct {
	location    s3.Location
	credentials aws.CredentialsProvider // nil: as the tools of Amazon find them
	forward     http.Handler
	front       *httptest.Server // of a service of ours
}

// Start returns a service, which ends with the test, or skips the test where there is none.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, p := start(tb)
	if p != nil {
		tb.Cleanup(func() {
			s.front.CloseClientConnections()
			s.front.Close()
			p.end()
			if tb.Failed() {
				tb.Log(p.output.String())
			}
		})
	}
	return s
}

// room has the service that the tests of a binary share.
var room struct {
	mu     sync.Mutex // guards server
	server *Server
}

// Shared returns the service of this binary, which ends with the process, or skips the test where
// there is none.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	room.mu.Lock()
	defer room.mu.Unlock()
	if room.server == nil {
		room.server, _ = start(tb)
	}
	return room.server
}

// start returns a service, and its process if it is one of ours.
func start(tb testing.TB) (*Server, *process) {
	tb.Helper()
	if named := os.Getenv("PACKHORSE_TEST_FILES"); named != "" {
		return other(tb, named), nil
	}
	path, ok := find()
	if !ok {
		tb.Skip("versitygw is neither in PATH nor in .cache/bin, and PACKHORSE_TEST_FILES is empty")
	}
	s := &Server{credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, "")}
	p := run(tb, path)
	s.forward = forward(&url.URL{Scheme: "http", Host: "unix"}, p.transport)
	s.front = httptest.NewServer(s.forward)
	s.location = s3.Location{Bucket: bucket, Region: "us-east-1", PathStyle: true, Endpoint: s.front.URL}
	s.makeBucket(tb)
	return s, p
}

// other returns a service that runs already.
func other(tb testing.TB, named string) *Server {
	tb.Helper()
	location, err := s3.ParseLocation(named)
	if err != nil {
		tb.Fatalf("PACKHORSE_TEST_FILES: %v", err)
	}
	endpoint, err := url.Parse(location.Endpoint)
	if err != nil || endpoint.Host == "" {
		tb.Fatalf("PACKHORSE_TEST_FILES has no endpoint")
	}
	return &Server{location: location, forward: forward(endpoint, http.DefaultTransport)}
}

// find returns the path of the program.
func find() (string, bool) {
	if path, err := exec.LookPath(program); err == nil {
		return path, true
	}
	folder, err := os.Getwd()
	for err == nil && folder != filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			path, err := exec.LookPath(filepath.Join(folder, ".cache", "bin", program))
			return path, err == nil
		}
		folder = filepath.Dir(folder)
	}
	return "", false
}

// process is a service that runs.
type process struct {
	command   *exec.Cmd
	life      io.Closer
	output    strings.Builder
	transport http.RoundTripper
}

// end ends the service and waits until nothing is left of it.
func (p *process) end() {
	_ = p.life.Close()
	_ = p.command.Wait()
}

// script gets the folder of the service as $0 and the service as its arguments. It ends the service
// and removes the folder when its input ends, which also happens when the tests are killed.
const script = `"$@" </dev/null & service=$!; cat >/dev/null; kill -9 $service; wait; rm -rf "$0"`

// run starts the program. It listens on a socket in the file system, so that no port can be taken
// by others.
func run(tb testing.TB, path string) *process {
	tb.Helper()
	root, err := os.MkdirTemp("", "s3test") // the path of a socket is short
	if err != nil {
		tb.Fatal(err)
	}
	socket := filepath.Join(root, "socket")
	for _, folder := range []string{"files", "attributes"} {
		if err := os.Mkdir(filepath.Join(root, folder), 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	p := &process{command: exec.Command("sh", "-c", script, root,
		path, "--access", accessKey, "--secret", secretKey, "--quiet", "--keep-alive", "--port", socket,
		"posix", "--sidecar", filepath.Join(root, "attributes"), filepath.Join(root, "files"))}
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	if p.life, err = p.command.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		tb.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	p.transport = &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64, DisableCompression: true}
	for {
		connection, err := dial(tb.Context(), "", "")
		if err == nil {
			_ = connection.Close()
			return p
		}
		select {
		case <-tb.Context().Done():
			p.end()
			tb.Fatal(err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// forward returns a handler that sends requests on as they are: their host is part of what is
// signed.
func forward(target *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Host = r.In.Host
			if _, named := r.In.Header["User-Agent"]; !named {
				r.Out.Header["User-Agent"] = nil
			}
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

func (s *Server) makeBucket(tb testing.TB) {
	tb.Helper()
	if _, err := s.Client().CreateBucket(tb.Context(), &awss3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
		tb.Fatal(err)
	}
}

// Client returns a client of the service that has nothing of the store's.
func (s *Server) Client() *awss3.Client {
	return awss3.New(awss3.Options{
		BaseEndpoint: &s.location.Endpoint, Region: s.location.Region, UsePathStyle: true, Credentials: s.credentials,
	})
}

// Proxy starts an HTTP server that passes requests through what wrap returns for the service, and
// returns its endpoint. It ends with the test.
func (s *Server) Proxy(tb testing.TB, wrap func(service http.Handler) http.Handler) (endpoint string) {
	tb.Helper()
	proxy := httptest.NewServer(wrap(s.forward))
	tb.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	return proxy.URL
}

// Options returns the options of a store in a place of its own: a prefix and a local folder that
// nobody else uses. It repeats requests without long rests.
func (s *Server) Options(tb testing.TB) s3.Options {
	tb.Helper()
	location := s.location
	location.Prefix = strings.TrimPrefix(location.Prefix+"/"+strings.ToLower(rand.Text()), "/")
	return s3.Options{Location: location, Dir: tb.TempDir(), Credentials: s.credentials, Backoff: time.Millisecond}
}

// Open returns a store with options, which is closed when the test ends unless it is closed before.
func Open(tb testing.TB, options s3.Options) *s3.Store {
	tb.Helper()
	store, err := s3.Open(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = store.Close() })
	return store
}

// Place returns a place of its own as another process takes it: the URL, and the environment with
// the credentials.
func (s *Server) Place(tb testing.TB) (location string, env []string) {
	tb.Helper()
	l := s.Options(tb).Location
	location = l.String() + "?" + url.Values{
		"endpoint": {l.Endpoint}, "region": {l.Region}, "path-style": {strconv.FormatBool(l.PathStyle)},
	}.Encode()
	if s.credentials == nil {
		return location, nil
	}
	keys, err := s.credentials.Retrieve(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return location, []string{"AWS_ACCESS_KEY_ID=" + keys.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + keys.SecretAccessKey}
}
