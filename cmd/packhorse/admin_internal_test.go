package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/engine"
)

// serveTasks answers at an admin socket until the test ends, and returns its path.
func serveTasks(t *testing.T, tasks map[string]task) string {
	t.Helper()
	socket := filepath.Join(shortDir(t), adminSocket)
	l, err := listenAdminSocket(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: adminHandler(nil, tasks, time.Millisecond, slog.New(slog.DiscardHandler), nil)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return socket
}

// shortDir returns a folder for sockets, gone when the test ends: their paths are bounded by about
// 100 bytes, and those of t.TempDir hold the test's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAskAdmin(t *testing.T) {
	t.Parallel()
	type greeting struct{ Name string }
	socket := serveTasks(t, map[string]task{
		"greet": taskOf(func(_ context.Context, _ *engine.Host, args greeting, out io.Writer) error {
			newProgress(out).tell(step{phase: "half of " + args.Name, done: 1})
			_, err := fmt.Fprintf(out, "good day,\n%s\n", args.Name)
			return err
		}),
		"fail": taskOf(func(_ context.Context, _ *engine.Host, _ struct{}, out io.Writer) error {
			_, err := io.WriteString(out, "one line, and one without an end")
			return errors.Join(err, errors.New("it cannot be done"))
		}),
		"panic": taskOf(func(context.Context, *engine.Host, struct{}, io.Writer) error { panic(http.ErrAbortHandler) }),
	})
	tests := map[string]struct {
		name, args string
		lines      []string
		err        string
	}{
		"lines and progress": {name: "greet", args: `{"Name":"Ada"}`, lines: []string{"\rhalf of Ada: 1", "good day,", "Ada"}},
		"error of the task":  {name: "fail", args: `{}`, err: "it cannot be done"},
		"unknown argument":   {name: "fail", args: `{"Force":true}`, err: "unknown field"},
		"unknown task":       {name: "dance", args: `{}`, err: "knows no dance"},
		"broken off":         {name: "panic", args: `{}`, err: "EOF"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines []string
			err := askAdmin(t.Context(), socket, test.name, []byte(test.args), patient(), func(line string) error {
				lines = append(lines, line)
				return nil
			})
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if !slices.Equal(lines, test.lines) {
				t.Errorf("lines %q, want %q", lines, test.lines)
			}
		})
	}
}

// TestAskAdminCancels checks that a task ends when its caller goes away.
func TestAskAdminCancels(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	socket := serveTasks(t, map[string]task{
		"wait": taskOf(func(ctx context.Context, _ *engine.Host, _ struct{}, out io.Writer) error {
			if _, err := fmt.Fprintln(out, "waiting"); err != nil {
				return err
			}
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}),
	})
	ctx, cancel := context.WithCancel(t.Context())
	err := askAdmin(ctx, socket, "wait", []byte("{}"), patient(), func(string) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the caller hears %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the task hears %v", err)
	}
}

// TestAskAdminNobody checks that a socket without a server is distinguished from one without
// permission.
func TestAskAdminNobody(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as after a kill
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, socket := range map[string]string{"absent": filepath.Join(dir, "absent.sock"), "stale": stale} {
		if err := askAdmin(t.Context(), socket, "fsck", []byte("{}"), patient(), nil); !errors.Is(err, errNoServer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	again, err := listenAdminSocket(t.Context(), stale)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(stale)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestTaskPrinter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		terminal    bool
		out, errOut string
	}{
		{true, "found\nend\n", eraseLine + "1 of 2" + eraseLine + eraseLine + "2 of 2" + eraseLine},
		{false, "found\nend\n", ""},
	} {
		var out, errOut bytes.Buffer
		printer := &taskPrinter{to: streams{out: &out, errOut: &errOut}, terminal: test.terminal}
		for _, line := range []string{"\r1 of 2", "found", "\r2 of 2", "end"} {
			if err := printer.print(line); err != nil {
				t.Fatal(err)
			}
		}
		printer.clear()
		if out.String() != test.out || errOut.String() != test.errOut {
			t.Errorf("terminal %t: printed %q and drew %q, want %q and %q", test.terminal, out.String(), errOut.String(),
				test.out, test.errOut)
		}
	}
}

// patient is a vigil that never ends a test.
func patient() *vigil {
	return &vigil{what: "the server", say: time.Hour, limit: time.Hour, tell: func(string) {}}
}

// TestAskAdminSilent asks a server that accepts the connection and never answers, like a stopped
// process: the command prints the reason of the wait, and gives up.
func TestAskAdminSilent(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), adminSocket)
	l, err := listenAdminSocket(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var told atomic.Value
	watch := &vigil{
		what:  "the server of the test",
		say:   time.Millisecond,
		limit: 200 * time.Millisecond,
		tell:  func(line string) { told.Store(line) },
	}
	err = askAdmin(t.Context(), socket, "gc", []byte("{}"), watch, nil)
	if silent, ok := errors.AsType[*silentError](err); !ok || silent.what != "the server of the test" {
		t.Errorf("%v", err)
	}
	if line, _ := told.Load().(string); line != "waiting for the server of the test, for 200ms at most" {
		t.Errorf("told %q", line)
	}
}

// TestAskAdminBeats has a task that prints nothing: the beats of the server arrive nevertheless,
// and are not part of the task's output.
func TestAskAdminBeats(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	socket := serveTasks(t, map[string]task{
		"think": taskOf(func(ctx context.Context, _ *engine.Host, _ struct{}, _ io.Writer) error {
			select {
			case <-released:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}),
	})
	var answer bytes.Buffer
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(
		conn, "POST /tasks/think HTTP/1.0\r\nContent-Length: 2\r\nPackhorse-Beat: 1\r\n\r\n{}",
	); err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 1000)
	for strings.Count(answer.String(), `{"beat":true}`) < 3 {
		n, err := conn.Read(piece)
		if err != nil {
			t.Fatal(err)
		}
		answer.Write(piece[:n])
	}
	close(released)
	beats := 0
	var lines []string
	text := answer.String() // it may end within a line
	text = text[strings.Index(text, "{") : strings.LastIndex(text, "\n")+1]
	err = hearTask(strings.NewReader(text+`{"text":"x"}`+`{"done":true}`),
		func() { beats++ },
		func(line string) error { lines = append(lines, line); return nil })
	if err != nil || beats < 5 || !slices.Equal(lines, []string{"x"}) {
		t.Errorf("%d beats, %q, %v", beats, lines, err)
	}
}
