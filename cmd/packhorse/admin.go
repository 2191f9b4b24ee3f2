package main

import (
	"bytes"
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
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"packhorse/api/audit"
	"packhorse/engine"
	"packhorse/odb/rescue"
)

// The admin socket lets maintenance commands work through the server that has a data folder open:
// HTTP over a Unix socket in that folder. The permissions of the file decide who may use it.
//
//	POST /tasks/NAME    the body is the task's arguments, as JSON; the answer is one adminLine a line of JSON, the last one Done
//
// A caller that disconnects cancels its task. A caller that asks for beats (beatHeader) gets an
// empty line every few seconds, as a sign that the server is alive.

// adminLine is a line of the answer: output of the task, or its end.
type adminLine struct {
	Text  string `json:"text,omitempty"`
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"` // of the task that is done
	// BadInput says that the error is due to what the caller has given.
	BadInput bool `json:"bad_input,omitempty"`
	Beat     bool `json:"beat,omitempty"` // nothing else
}

// beatHeader is sent by callers that understand beats.
const beatHeader = "Packhorse-Beat"

// beatEvery is the interval of beats.
const beatEvery = 5 * time.Second

// adminArgsMax bounds the arguments of a task in bytes.
const adminArgsMax = 1 << 20

// onlyLooks are the tasks that change nothing and are done at once: a monitor may ask for one each
// minute.
var onlyLooks = map[string]bool{statusTask: true, "webhooks-list": true, "repos-list": true, "repos-show": true}

// listenAdminSocket makes the socket. The store is open, so an existing socket was left by a crash.
func listenAdminSocket(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// The file takes its mode from the socket, so that there is no instant at which others may open
	// it.
	listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	l, err := listen.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// adminHandler runs tasks. every is the time between beats. The audit log gets a record of each; it
// may be nil.
func adminHandler(
	host *engine.Host, tasks map[string]task, every time.Duration, logger *slog.Logger, to *audit.Writer,
) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tasks/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		w, r, ended := auditTask(to, w, r, name, tasks[name] != nil)
		defer ended()
		run, ok := tasks[name]
		if !ok {
			http.Error(w, "the server knows no "+name, http.StatusNotFound)
			return
		}
		// Read to its end: only then net/http notices that the caller goes away.
		args, err := io.ReadAll(http.MaxBytesReader(w, r.Body, adminArgsMax))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		lines, flush := json.NewEncoder(w), http.NewResponseController(w).Flush
		var mu sync.Mutex // guards lines and flush
		tell := func(line adminLine) error {
			mu.Lock()
			defer mu.Unlock()
			return errors.Join(lines.Encode(line), flush())
		}
		if r.Header.Get(beatHeader) != "" {
			defer beat(logger, tell, every)()
		}
		log, level := logger.With("task", name), slog.LevelInfo
		if onlyLooks[name] {
			level = slog.LevelDebug
		}
		log.Log(r.Context(), level, "task begins", "args", string(args))
		begun := time.Now()
		last := adminLine{Done: true}
		if err := run(
			r.Context(), host, args, &lineWriter{line: func(text string) error { return tell(adminLine{Text: text}) }},
		); err != nil {
			last.Error, last.BadInput = err.Error(), isBadInput(err)
			taskFailed(w)
		}
		log.Log(r.Context(), level, "task ended", "duration", time.Since(begun), "error", last.Error)
		if err := tell(last); err != nil {
			log.Info("failed to send the result: the client has gone", "error", err)
		}
	})
	return mux
}

// beat sends keep-alive lines, at once and then periodically, until the returned function is
// called.
func beat(log *slog.Logger, tell func(adminLine) error, every time.Duration) (stop func()) {
	ended := make(chan struct{})
	var beating sync.WaitGroup
	rescue.Go(&beating, func() error {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for tell(adminLine{Beat: true}) == nil {
			select {
			case <-ended:
				return nil
			case <-ticker.C:
			}
		}
		return nil
	}, func(err error) { log.Error("failed to send keep-alive lines", "error", err) })
	return sync.OnceFunc(func() {
		close(ended)
		beating.Wait()
	})
}

// errNoServer says that no server has the data folder open, or that it has no socket.
var errNoServer = errors.New("no server answers")

// askAdmin runs a task in the server behind a socket, calls line with its output, and returns its
// error. The socket of a killed server has no listener. Errors: errNoServer when nothing listens.
//
// watch is notified of everything that arrives, and ends the wait when nothing does.
func askAdmin(
	ctx context.Context, socket, name string, args []byte, watch *vigil, line func(string) error,
) (err error) {
	ctx = watch.begin(ctx)
	defer watch.end()
	defer func() {
		if silent, ok := errors.AsType[*silentError](context.Cause(ctx)); ok && err != nil {
			err = silent
		}
	}()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: %w", errNoServer, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run the command as %s", err, usersOf(socket))
	}
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://packhorse/tasks/"+name, bytes.NewReader(args))
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	request.Header.Set(beatHeader, "1")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fmt.Errorf("the server answers %s: %s", response.Status, text)
	}
	return hearTask(response.Body, watch.heard, line)
}

// usersOf says who may use a socket: the user of the server, to whom it belongs, as far as that can
// be seen, and root.
func usersOf(socket string) string {
	info, err := os.Stat(socket)
	if err != nil { // only its owner may look into the folder
		info, err = os.Stat(filepath.Dir(socket))
	}
	if err != nil {
		return "the user of the server, or as root"
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return "the user of the server, or as root"
	case stat.Uid == 0:
		return "root, the user of the server"
	}
	id := strconv.FormatUint(uint64(stat.Uid), 10)
	if found, err := user.LookupId(id); err == nil {
		id = found.Username
	}
	return id + ", the user of the server, or as root"
}

// hearTask reads the answer to its end.
func hearTask(answer io.Reader, heardAny func(), line func(string) error) error {
	lines := json.NewDecoder(answer)
	for {
		var heard adminLine
		if err := lines.Decode(&heard); err != nil {
			return fmt.Errorf("the server ended the connection early: %w", err)
		}
		heardAny()
		switch {
		case heard.Beat:
			continue
		case heard.Done && heard.BadInput:
			return &usageError{heard.Error}
		case heard.Done && heard.Error != "":
			return errors.New(heard.Error)
		case heard.Done:
			return nil
		}
		if err := line(heard.Text); err != nil {
			return err
		}
	}
}
