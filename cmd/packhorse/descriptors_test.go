//go:build unix

package main_test

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// A server with 1,024 descriptors continues to serve clients with a token, and lets others in,
// however many idle connections there are.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	const idle = 1500
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 2*idle {
		t.Skipf("skipped: the test needs %d descriptors itself", 2*idle)
	}
	dir := t.TempDir()
	few := filepath.Join(dir, "few")
	oracle.WriteScript(t, few, fmt.Sprintf("#!/bin/sh\nulimit -n 1024\nexec %q \"$@\"\n", bin))
	server := start(t, packhorsetest.Options{Bin: few, Dir: dir})
	token := create(t, server, "kept")
	newClient := func() *http.Client {
		transport := &http.Transport{MaxIdleConnsPerHost: 1, MaxConnsPerHost: 1}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	var known []*http.Client
	for range 10 {
		known = append(known, newClient())
	}
	serves := func(when string) {
		t.Helper()
		for i, client := range append(known, newClient()) {
			for _, path := range []string{"/api/v1/repo", "/api/v1/repos/branches"} {
				if status, text := call(t, client, "GET", server.URL+path, token); status != http.StatusOK {
					t.Fatalf("%s: client %d: %d %s", when, i, status, text)
				}
			}
		}
	}
	serves("at first")
	var dialer net.Dialer
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for i := range idle {
		c, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)
		if i%100 == 99 {
			serves(fmt.Sprintf("with %d idle connections", i+1))
		}
	}
	if later := create(t, server, "later"); later == "" {
		t.Error("no repository can be made")
	}
	for _, c := range conns {
		_ = c.Close()
	}
	conns = nil
	serves("when they have gone")
	if out := server.Output(); strings.Contains(out, "too many open files") || strings.Contains(out, "level=ERROR") {
		t.Errorf("logged\n%s", out)
	}
}
