package main_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
			opening, ready := make(chan string, 1), make(chan error, 1)
			var server *packhorsetest.Server
			options := packhorsetest.Options{
				Bin: bin, Dir: t.TempDir(), TLS: scheme == "https", Flags: []string{"--secret-key", pipe, "--log-level", "info"},
				Log: urlAfter("opening the stores", opening),
			}
			go func() {
				var err error
				server, err = packhorsetest.Start(t.Context(), options)
				ready <- err
			}()
			client := &http.Client{Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
			}}
			var url string
			select {
			case url = <-opening:
			case err := <-ready:
				t.Fatalf("ready without a key: %v", err)
			}
			for path, want := range map[string]struct {
				status int
				text   string
			}{
				"/healthz":          {http.StatusOK, "ok\n"},
				"/readyz":           {http.StatusServiceUnavailable, "starting\n"},
				"/api/v1/repos":     {http.StatusServiceUnavailable, `{"error":"the server is starting","code":"unavailable"}` + "\n"},
				"/r.git/info/refs":  {http.StatusServiceUnavailable, `{"error":"the server is starting","code":"unavailable"}` + "\n"},
				"/no/such/endpoint": {http.StatusServiceUnavailable, `{"error":"the server is starting","code":"unavailable"}` + "\n"},
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
			if status, text := call(t, client, http.MethodGet, url+"/readyz", ""); status != http.StatusOK ||
				!strings.HasPrefix(text, "ready") {
				t.Errorf("/readyz of %s: %d %q", server.URL, status, text)
			}
			if status, _ := call(t, client, http.MethodGet, url+"/api/v1/repos", ""); status != http.StatusUnauthorized {
				t.Errorf("without a token: %d", status)
			}
		})
	}
}

// urlAfter watches a log for the first line with a message, and sends the URL in it.
func urlAfter(message string, found chan<- string) func(line string) {
	return func(line string) {
		_, rest, ok := strings.Cut(line, fmt.Sprintf("msg=%q url=", message))
		if !ok {
			return
		}
		select {
		case found <- rest:
		default: // it has been sent
		}
	}
}
