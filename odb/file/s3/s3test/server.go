// Package s3test runs an S3 service for tests: versitygw over a temporary folder.
//
// Start at [Start]. The program is taken from PATH or from .cache/bin of the repository, where
// .ci/run installs it. PACKHORSE_TEST_FILES may name a bucket of another service instead, as
// s3.ParseLocation reads it; its credentials are then those that the tools of Amazon find. Tests
// are skipped where neither is there.
package s3test

import (
	"context"
	"crypto/rand"
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
}

// Start returns a service, which ends with the test, or skips the test where there is none.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if named := os.Getenv("PACKHORSE_TEST_FILES"); named != "" {
		return other(tb, named)
	}
	path, ok := find()
	if !ok {
		tb.Skip("versitygw is neither in PATH nor in .cache/bin, and PACKHORSE_TEST_FILES is empty")
	}
	s := &Server{credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, "")}
	s.forward = forward(&url.URL{Scheme: "http", Host: "unix"}, run(tb, path))
	s.location = s3.Location{Bucket: bucket, Region: "us-east-1", PathStyle: true}
	s.location.Endpoint = s.Proxy(tb, func(next http.Handler) http.Handler { return next })
	s.makeBucket(tb)
	return s
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

// run starts the program and returns a transport of requests to it. It listens on a socket in the
// file system, so that no port can be taken by others.
func run(tb testing.TB, path string) http.RoundTripper {
	tb.Helper()
	root, err := os.MkdirTemp("", "s3test") // the path of a socket is short
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			tb.Error(err)
		}
	})
	socket := filepath.Join(root, "socket")
	for _, folder := range []string{"files", "attributes"} {
		if err := os.Mkdir(filepath.Join(root, folder), 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	// The shell ends the service when its input ends, which also happens when the tests are killed.
	var output strings.Builder
	service := exec.Command("sh", "-c", `"$@" </dev/null & service=$!; cat >/dev/null; kill -9 $service; wait`, "sh",
		path, "--access", accessKey, "--secret", secretKey, "--quiet", "--keep-alive", "--port", socket,
		"posix", "--sidecar", filepath.Join(root, "attributes"), filepath.Join(root, "files"))
	service.Stdout, service.Stderr = &output, &output
	life, err := service.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := service.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = life.Close()
		_ = service.Wait() // it was killed
		if tb.Failed() {
			tb.Log(output.String())
		}
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	for {
		connection, err := dial(tb.Context(), "", "")
		if err == nil {
			_ = connection.Close()
			return &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64, DisableCompression: true}
		}
		select {
		case <-tb.Context().Done():
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
