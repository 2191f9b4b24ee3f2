// Package s3test runs an S3 service for tests: versitygw over a temporary folder, or MinIO.
//
// Start at [Start], or at [Shared] for one service of all tests of a binary. The program is taken
// from PATH or from .cache/bin of the repository, where .ci/run installs versitygw.
// PACKHORSE_TEST_FILES=minio asks for MinIO. It may also name a bucket of a service that runs, as
// s3.ParseLocation reads it; its credentials are then those that the tools of Amazon find. Tests
// are skipped where the program is missing.
package s3test

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"packhorse/odb/file/s3"
)

const (
	bucket    = "tests"
	accessKey = "packhorse"
	secretKey = "packhorse-secret"
)

// Server is a running service. Its methods may be called concurrently.
type Server struct {
	location    s3.Location
	credentials aws.CredentialsProvider
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
	command := versitygw
	switch named := os.Getenv("PACKHORSE_TEST_FILES"); named {
	case "":
	case "minio":
		command = minio
	default:
		return other(tb, named), nil
	}
	s := &Server{credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, "")}
	p := run(tb, command)
	s.forward = forward(&url.URL{Scheme: "http", Host: "service"}, p.transport)
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
	loaded, err := config.LoadDefaultConfig(tb.Context())
	if err != nil {
		tb.Fatalf("PACKHORSE_TEST_FILES: credentials: %v", err)
	}
	return &Server{
		location: location, credentials: loaded.Credentials, forward: forward(endpoint, http.DefaultTransport),
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
	keys, err := s.credentials.Retrieve(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return location, []string{"AWS_ACCESS_KEY_ID=" + keys.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + keys.SecretAccessKey}
}
