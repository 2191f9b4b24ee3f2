package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"packhorse/api"
	"packhorse/api/audit"
	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// benchServer is a server without a log.
func benchServer(b *testing.B, routes map[string]api.Handler) *fixture {
	b.Helper()
	return serve(b, routes, func(c *api.Config) { c.Logger = slog.New(slog.DiscardHandler) })
}

// BenchmarkSmallRequests is the cost of a request whose handler does nothing: client and server
// share the processors.
func BenchmarkSmallRequests(b *testing.B) {
	smallRequests(b, benchServer(b, map[string]api.Handler{"GET /get": respond(200, "got")}))
}

// BenchmarkAuditedRequests is the same with an audit log in a file.
func BenchmarkAuditedRequests(b *testing.B) {
	writer, err := audit.Open(audit.Options{To: filepath.Join(b.TempDir(), "audit.jsonl")})
	must(err)
	smallRequests(b, serve(b, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) {
		c.Logger, c.Audit = slog.New(slog.DiscardHandler), writer
	}))
	must(writer.Close(b.Context()))
	if writer.Failures() > 0 {
		b.Errorf("%d records are lost", writer.Failures())
	}
}

// BenchmarkLimitedRequests is the same of an organization with a rate that it does not reach.
func BenchmarkLimitedRequests(b *testing.B) {
	dir := b.TempDir()
	must(os.Mkdir(filepath.Join(dir, "acme"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "acme", "k.pem"), keys().public, 0o644))
	must(os.WriteFile(filepath.Join(dir, "acme", "org.yaml"), []byte("limits: {requests_per_second: 1000000}\n"), 0o644))
	tokens, err := auth.Open(auth.Options{Dir: dir})
	must(err)
	b.Cleanup(tokens.Close)
	smallRequests(b, serve(b, map[string]api.Handler{"GET /get": respond(200, "got")}, func(c *api.Config) {
		c.Logger, c.Tokens = slog.New(slog.DiscardHandler), tokens
	}))
}

// smallRequests sends requests for /get from several clients.
func smallRequests(b *testing.B, f *fixture) {
	b.Helper()
	request := []byte("GET /get?limit=20 HTTP/1.1\r\nHost: x\r\nUser-Agent: bench\r\nAuthorization: " +
		token("team/project", "git:read") + "\r\n\r\n")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", f.address)
		must(err)
		defer func() { _ = c.Close() }()
		answer := make([]byte, 4096)
		for pb.Next() {
			_, err := c.Write(request)
			must(err)
			_, err = c.Read(answer)
			must(err)
		}
	})
}

// BenchmarkStream is the rate of a long answer.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{8 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			piece := make([]byte, size)
			f := benchServer(b, map[string]api.Handler{"GET /big": func(x exchange.Exchange, _ *auth.Grant) error {
				x.Stream(200, "text/plain", func(_ context.Context, w io.Writer) error {
					for range b.N {
						if _, err := w.Write(piece); err != nil {
							return err
						}
					}
					return nil
				})
				return nil
			}})
			b.SetBytes(int64(size))
			c, err := net.Dial("tcp", f.address)
			must(err)
			defer func() { _ = c.Close() }()
			b.ResetTimer()
			_, err = io.WriteString(c, "GET /big HTTP/1.1\r\nHost: x\r\nAuthorization: "+token("r", "git:read")+"\r\n\r\n")
			must(err)
			response, err := http.ReadResponse(bufio.NewReaderSize(c, 256<<10), nil)
			must(err)
			_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, response.Body, make([]byte, 256<<10))
			must(err)
		})
	}
}

// BenchmarkUpload is the rate of a long body.
func BenchmarkUpload(b *testing.B) {
	const piece = 1 << 20
	for _, chunked := range []bool{false, true} {
		b.Run(fmt.Sprintf("chunked=%t", chunked), func(b *testing.B) {
			f := serve(b, nil, func(c *api.Config) {
				c.Logger = slog.New(slog.DiscardHandler)
				c.Routes = []api.Route{{
					Method: "POST", Path: "/read", Scope: auth.GitWrite, Denied: 401, BodyMax: 1 << 50,
					Handler: func(x exchange.Exchange, _ *auth.Grant) error {
						_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{x.Body()}, make([]byte, 256<<10))
						x.Respond(200, "text/plain", nil)
						return err
					},
				}}
			})
			b.SetBytes(piece)
			c, err := net.Dial("tcp", f.address)
			must(err)
			defer func() { _ = c.Close() }()
			body, framing := make([]byte, piece), fmt.Sprintf("Content-Length: %d", b.N*piece)
			if chunked {
				framing = "Transfer-Encoding: chunked"
				body = fmt.Appendf(nil, "%x\r\n%s\r\n", piece, body)
			}
			b.ResetTimer()
			_, err = io.WriteString(c,
				"POST /read HTTP/1.1\r\nHost: x\r\nAuthorization: "+token("r", "git:write")+"\r\n"+framing+"\r\n\r\n")
			must(err)
			for range b.N {
				_, err := c.Write(body)
				must(err)
			}
			if chunked {
				_, err = io.WriteString(c, "0\r\n\r\n")
				must(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			must(err)
			if response.StatusCode != 200 {
				b.Fatal(response.Status)
			}
		})
	}
}
