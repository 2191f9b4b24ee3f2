package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"packhorse/api/auth"
	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/pack/object"
)

// The organizations that share a load's clients: one alone gets half of the memory.
var orgs = []string{packhorsetest.Org, "other"}

// house is the server, its data, and its clients.
type house struct {
	bin    string
	dir    string
	group  *group
	memory int64

	server *packhorsetest.Server
	client *http.Client
	key    []byte
	tokens map[string]string    // of org/repo
	named  map[string]object.ID // the IDs of refs of the repositories
	pushes []newPush
	count  atomic.Int64 // numbers the pushes
}

// start starts the server in its group.
func (h *house) start(ctx context.Context) error {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return err
	}
	script := filepath.Join(h.dir, "grouped")
	text := fmt.Sprintf("#!/bin/sh\necho $$ > %q\nexec %q \"$@\"\n", h.group.procs(), h.bin)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		return err
	}
	var err error
	h.server, err = packhorsetest.Start(ctx, packhorsetest.Options{
		Bin: script, Dir: h.dir, Flags: []string{"--memory", fmt.Sprint(h.memory)},
	})
	if err != nil {
		return err
	}
	if err := h.server.AddOrg(ctx, orgs[1]); err != nil {
		return err
	}
	if h.key, err = os.ReadFile(h.server.KeyFile()); err != nil {
		return err
	}
	h.tokens = make(map[string]string)
	h.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	return nil
}

// stop ends the server, and returns its output if it had ended before.
func (h *house) stop() error {
	h.client.CloseIdleConnections()
	return h.server.Kill()
}

func (h *house) token(org, repo string) (string, error) {
	if token, ok := h.tokens[org+"/"+repo]; ok {
		return token, nil
	}
	now := time.Now()
	token, err := auth.Mint(h.key, auth.Claims{
		Org: org, Repo: repo, Scopes: []string{"git:read", "git:write", "repo:write", "org:read"},
		IssuedAt: now, Expires: now.Add(24 * time.Hour),
	})
	h.tokens[org+"/"+repo] = token
	return token, err
}

// ask is one request.
type ask struct {
	org, repo    string
	method, path string // path of the API, or of the repository's .git
	contentType  string
	body         io.Reader
	length       int64 // of body; -1 sends it in chunks
	slow         bool  // reads the answer as slowly as allowed
	keep         bool  // keeps the beginning of the answer as its reason
}

// told is the result of a request.
type told struct {
	status int    // 0 when the connection was cut before a status
	cut    bool   // in the midst of the answer
	reason string // of a refusal
}

// do asks and reads the answer to its end.
func (h *house) do(ctx context.Context, a ask) (told, error) {
	url := h.server.URL + "/api/v1/" + a.path
	if strings.HasPrefix(a.path, "git-") || strings.HasPrefix(a.path, "info/") {
		url = h.server.URL + "/" + a.repo + ".git/" + a.path
	}
	request, err := http.NewRequestWithContext(ctx, a.method, url, a.body)
	if err != nil {
		return told{}, err
	}
	if a.body != nil {
		request.ContentLength = a.length
	}
	request.Header.Set("Authorization", "Bearer "+h.tokens[a.org+"/"+a.repo])
	if a.contentType != "" {
		request.Header.Set("Content-Type", a.contentType)
	}
	client := h.client
	if a.slow {
		transport := &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, DialContext: dialNarrow, ReadBufferSize: 4 << 10,
		}
		client = &http.Client{Transport: transport}
	}
	response, err := client.Do(request)
	if err != nil {
		return told{reason: err.Error()}, nil //nolint:nilerr // a connection that was cut is an answer, too
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	got := told{status: response.StatusCode}
	if got.status >= http.StatusBadRequest || a.keep {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		got.reason = string(bytes.TrimSpace(text))
		return got, nil
	}
	if a.slow {
		err = readSlowly(ctx, response.Body)
	} else {
		_, err = io.Copy(io.Discard, response.Body)
	}
	got.cut = err != nil
	return got, nil
}

// dialNarrow connects with a small window, so that unread data of a slow client stays in the
// server.
func dialNarrow(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = tcp.SetReadBuffer(4 << 10)
	}
	return conn, err
}

// readSlowly reads 2 KiB a second.
func readSlowly(ctx context.Context, body io.Reader) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for buf := make([]byte, 2<<10); ; {
		switch _, err := io.ReadFull(body, buf); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
