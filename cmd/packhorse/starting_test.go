package main_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestStarting holds a start up by a secret key that comes from a pipe.
func TestStarting(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			pipe := filepath.Join(t.TempDir(), "secret")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			address := freeAddress(t)
			ready := make(chan error, 1)
			var server *packhorsetest.Server
			options := packhorsetest.Options{
				Bin: bin, Dir: t.TempDir(), TLS: scheme == "https", Flags: []string{"--secret-key", pipe, "--listen", address},
			}
			go func() {
				var err error
				server, err = packhorsetest.Start(t.Context(), options)
				ready <- err
			}()
			client := &http.Client{Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
			}}
			url := scheme + "://" + address
			awaitAnswer(t, client, url+"/healthz")
			for path, want := range map[string]struct {
				status int
				text   string
			}{
				"/healthz":          {http.StatusOK, "ok\n"},
				"/readyz":           {http.StatusServiceUnavailable, "starting\n"},
				"/api/v1/repos":     {http.StatusServiceUnavailable, `{"error":"the server is starting"}` + "\n"},
				"/r.git/info/refs":  {http.StatusServiceUnavailable, `{"error":"the server is starting"}` + "\n"},
				"/no/such/endpoint": {http.StatusServiceUnavailable, `{"error":"the server is starting"}` + "\n"},
			} {
				if status, text := call(t, client, http.MethodGet, url+path, ""); status != want.status || text != want.text {
					t.Errorf("%s while starting: %d %q, want %d %q", path, status, text, want.status, want.text)
				}
			}
			if err := os.WriteFile(pipe, bytes.Repeat([]byte{7}, 32), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := <-ready; err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := server.Kill(); err != nil {
					t.Error(err)
				}
			})
			if status, text := call(t, client, http.MethodGet, url+"/readyz", ""); status != http.StatusOK || !strings.HasPrefix(text, "ready") {
				t.Errorf("/readyz of %s: %d %q", server.URL, status, text)
			}
			if status, _ := call(t, client, http.MethodGet, url+"/api/v1/repos", ""); status != http.StatusUnauthorized {
				t.Errorf("without a token: %d", status)
			}
		})
	}
}

// freeAddress returns an address of the loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// awaitAnswer returns when a server answers at all.
func awaitAnswer(t *testing.T, client *http.Client, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			if err := response.Body.Close(); err != nil {
				t.Fatal(err)
			}
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}
