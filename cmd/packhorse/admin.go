package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"

	"packhorse/engine"
)

// The admin socket lets tools work through the server that has a data folder open: HTTP over a Unix socket in that folder. Whoever
// may open the file may use it.

// listenAdminSocket makes the socket. The store is open, so that one which is there already was left by a crash.
func listenAdminSocket(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil { // the folder is closed to others as well
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// adminHandler answers tools. POST /fsck streams one fsckLine a line of JSON; the last one is the outcome.
func adminHandler(host *engine.Host, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /fsck", func(w http.ResponseWriter, r *http.Request) {
		logger.Info("fsck begins")
		w.Header().Set("Content-Type", "application/x-ndjson")
		lines := json.NewEncoder(w)
		flush := http.NewResponseController(w).Flush
		found := func(line fsckLine) error { return errors.Join(lines.Encode(line), flush()) }
		outcome, err := runFsck(r.Context(), host, found)
		if err != nil {
			outcome.Failed = err.Error()
		}
		logger.Info("fsck ended", "repositories", outcome.Repositories, "objects", outcome.Objects, "damaged", outcome.Damaged, "failed", outcome.Failed)
		outcome.Done = true
		if err := found(outcome); err != nil {
			logger.Warn("fsck: nobody hears the outcome", "error", err)
		}
	})
	return mux
}

// askAdmin runs fsck in the server behind a socket, and hands on what it finds. Errors: errNoServer when nobody listens.
func askAdmin(ctx context.Context, socket string, found func(fsckLine) error) (fsckLine, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoServer, err)
		}
		return conn, nil
	}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://packhorse/fsck", nil)
	if err != nil {
		return fsckLine{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return fsckLine{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fsckLine{}, fmt.Errorf("the server answers %s: %s", response.Status, text)
	}
	lines := json.NewDecoder(response.Body)
	for {
		var line fsckLine
		if err := lines.Decode(&line); err != nil {
			return fsckLine{}, fmt.Errorf("the server broke off: %w", err)
		}
		if line.Done {
			if line.Failed != "" {
				return line, errors.New(line.Failed)
			}
			return line, nil
		}
		if err := found(line); err != nil {
			return fsckLine{}, err
		}
	}
}

// errNoServer says that no server has the data folder open.
var errNoServer = errors.New("no server runs")
