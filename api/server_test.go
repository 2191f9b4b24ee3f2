package api_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/odb/odbtest"
)

// keys are the key pair of the organizations "acme", "other" and "third", and a certificate of
// 127.0.0.1.
var keys = sync.OnceValue(func() (k struct {
	private, public []byte
	certificate     tls.Certificate
},
) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	k.private = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	der, err = x509.MarshalPKIXPublicKey(key.Public())
	must(err)
	k.public = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(err)
	k.certificate = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return k
})

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// token is an Authorization header of the organization "acme".
func token(repo string, scopes ...string) string { return tokenOf("acme", repo, scopes...) }

func tokenOf(org, repo string, scopes ...string) string {
	text, err := auth.Mint(keys().private, auth.Claims{
		Org: org, Subject: "ci", Repo: repo, Scopes: scopes, Expires: time.Now().Add(time.Hour),
	})
	must(err)
	return "Bearer " + text
}

// fixture is a server on a port of its own.
type fixture struct {
	*api.Server
	address string
	tls     bool
	log     *odbtest.Log
}

// refuseJSON renders errors as the doors do.
func refuseJSON(x exchange.Exchange, err error) problem.Problem {
	p := problem.From(err)
	x.Respond(p.Status, problem.ContentType, p.JSON())
	return p
}

// serve starts a server. The routes may be read with git:read and written with git:write; edit may
// change anything.
func serve(tb testing.TB, routes map[string]api.Handler, edit func(*api.Config)) *fixture {
	tb.Helper()
	dir := tb.TempDir()
	for _, org := range []string{"acme", "other", "third"} {
		must(os.Mkdir(filepath.Join(dir, org), 0o755))
		must(os.WriteFile(filepath.Join(dir, org, "k.pem"), keys().public, 0o644))
	}
	tokens, err := auth.Open(auth.Options{Dir: dir})
	must(err)
	tb.Cleanup(tokens.Close)
	f := &fixture{log: &odbtest.Log{}}
	config := api.Config{
		Tokens: tokens,
		Refuse: refuseJSON,
		Git: api.Git{
			Serve: func(x exchange.Exchange, path exchange.GitPath, _ *auth.Grant) error {
				x.Respond(http.StatusOK, "text/plain", fmt.Appendf(nil, "%s %d %s", path.Repo, path.Variant, path.Service))
				return nil
			},
			Refuse: func(x exchange.Exchange, err error) problem.Problem {
				p := problem.From(err)
				x.SetHeader("Www-Authenticate", "Basic")
				x.Respond(p.Status, "text/plain", []byte(p.Message))
				return p
			},
		},
		Logger: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Limits: api.Limits{LingerWait: time.Minute}, // a reset while a slow client still sends would take the answer with it
	}
	for name, handler := range routes {
		method, path, _ := strings.Cut(name, " ")
		scope := auth.GitRead
		if method == http.MethodPost {
			scope = auth.GitWrite
		}
		config.Routes = append(config.Routes,
			api.Route{Method: method, Path: path, Scope: scope, Denied: http.StatusUnauthorized, Handler: handler})
	}
	if edit != nil {
		edit(&config)
	}
	f.Server, err = api.NewServer(config)
	must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	f.address, f.tls = listener.Addr().String(), config.TLS != nil
	served := make(chan error, 1)
	go func() { served <- f.Serve(listener) }()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := f.Shutdown(ctx); err != nil {
			tb.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			tb.Errorf("Serve: %v", err)
		}
	})
	return f
}

// client is one raw connection to a server.
type client struct {
	net.Conn
	*bufio.Reader
	t *testing.T
}

// Read is the buffered one.
func (c *client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func (f *fixture) dial(t *testing.T) *client {
	t.Helper()
	raw, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	if f.tls {
		raw = tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // the certificate was made above
	}
	t.Cleanup(func() { _ = raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(2 * time.Minute))
	return &client{Conn: raw, Reader: bufio.NewReader(raw), t: t}
}

// send writes text in which a line ends in "\n" alone.
func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		c.t.Logf("send: %v", err) // the server may have closed already
	}
}

// raw writes text unchanged.
func (c *client) raw(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Logf("send: %v", err)
	}
}

// answer is one answer, read whole.
type answer struct {
	*http.Response
	body string
	cut  error // why the body ended before its end
}

// receive reads one answer to a request of the method.
func (c *client) receive(method string) answer {
	c.t.Helper()
	response, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(response.Body)
	return answer{response, string(body), err}
}

// closes checks that the server closes the connection without another byte.
func (c *client) closes() {
	c.t.Helper()
	rest, err := io.ReadAll(c.Reader)
	if len(rest) != 0 {
		c.t.Errorf("more bytes: %q", rest)
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !isReset(err) {
		c.t.Errorf("the connection stays open: %v", err)
	}
}

func isReset(err error) bool {
	return strings.Contains(err.Error(), "reset") || strings.Contains(err.Error(), "close_notify") ||
		errors.Is(err, io.EOF)
}

// closeWrite ends the sending half.
func (c *client) closeWrite() {
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil { // TCP and TLS have it
		c.t.Fatal(err)
	}
}

func respond(status int, text string) api.Handler {
	return func(x exchange.Exchange, _ *auth.Grant) error {
		x.Respond(status, "text/plain", []byte(text))
		return nil
	}
}

// reader answers with the result of reading the body.
func reader(x exchange.Exchange, _ *auth.Grant) error {
	n, err := io.Copy(io.Discard, x.Body())
	x.Respond(http.StatusOK, "text/plain", fmt.Appendf(nil, "%d %v", n, err))
	return nil
}
