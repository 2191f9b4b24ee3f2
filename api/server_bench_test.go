package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"packhorse/api"
	"packhorse/api/auth"
	"packhorse/api/exchange"
)

// benchServer is a server without a log.
func benchServer(b *testing.B, routes map[string]api.Handler) *fixture {
	b.Helper()
	return serve(b, routes, func(c *api.Config) { c.Logger = slog.New(slog.DiscardHandler) })
}

// BenchmarkSmallRequests is the cost of a request whose handler does nothing: client and server share the processors.
func BenchmarkSmallRequests(b *testing.B) {
	f := benchServer(b, map[string]api.Handler{"GET /get": respond(200, "got")})
	request := []byte("GET /get?limit=20 HTTP/1.1\r\nHost: x\r\nUser-Agent: bench\r\nAuthorization: " + token("team/project", "git:read") + "\r\n\r\n")
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
