package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"packhorse/engine"
)

// A task is a maintenance command. It runs in the process that has the data folder open: in the
// server, at whose admin socket the command asks for it, or in the command itself when no server
// runs.
//
// Args are the command's arguments, as JSON. The output of the task is printed line by line; on a
// terminal a line of [progress] overwrites the one before. The task ends when ctx does, which is
// when its caller disconnects or the server stops. The command returns its error.
type task func(ctx context.Context, host *engine.Host, args json.RawMessage, out io.Writer) error

// tasks are all of them, by the name of their command.
var tasks = map[string]task{
	"backup":         taskOf(runBackup),
	"fsck":           taskOf(runFsck),
	"gc":             taskOf(runGC),
	"webhooks-list":  taskOf(runWebhooksList),
	"webhooks-retry": taskOf(runWebhooksRetry),
}

// taskOf makes a task of a function that takes its arguments decoded.
func taskOf[A any](run func(ctx context.Context, host *engine.Host, args A, out io.Writer) error) task {
	return func(ctx context.Context, host *engine.Host, args json.RawMessage, out io.Writer) error {
		var decoded A
		decoder := json.NewDecoder(bytes.NewReader(args))
		decoder.DisallowUnknownFields() // they are from a command of another version
		if err := decoder.Decode(&decoded); err != nil {
			return fmt.Errorf("arguments: %w", err)
		}
		return run(ctx, host, decoded, out)
	}
}

// taskFlags are the common flags of all maintenance commands.
type taskFlags struct {
	Data string `help:"Data folder." placeholder:"DIR" required:"" type:"path" is:"folder"`

	openFlags
}

// openFlags say how the data folder is opened, by its server or by the command.
type openFlags struct {
	Wait time.Duration `help:"How long to wait for a server that has the folder open but does not answer." default:"30s" min:"1ms"`

	auditFlags
	logFlags
	storeFlags
}

// run runs a task in the server that has the folder open, or opens it itself.
func (f taskFlags) run(ctx context.Context, name string, args any, to streams) error {
	return f.runWith(ctx, name, args, outside{}, to)
}

// runWith is run with what a folder that it opens itself is given.
func (f taskFlags) runWith(ctx context.Context, name string, args any, around outside, to streams) error {
	printer := &taskPrinter{to: to, terminal: isTerminal(to.errOut)}
	defer printer.clear()
	return f.runLines(ctx, name, tasks[name], args, around, to, printer.print)
}

// runLines is runWith for a task that a server knows by name, and that is run when there is none.
// line is called with each line of its output.
func (f taskFlags) runLines(
	ctx context.Context, name string, run task, args any, around outside, to streams, line func(string) error,
) error {
	encoded, err := json.Marshal(args)
	if err != nil {
		return err
	}
	watch := &vigil{
		what: "the server that has " + f.Data + " open", say: sayAfter, limit: f.Wait,
		tell: func(line string) { to.complain("%s", line) },
	}
	err = askAdmin(ctx, filepath.Join(f.Data, adminSocket), name, encoded, watch, line)
	if !errors.Is(err, errNoServer) {
		return err
	}
	noServer := err
	logger := f.logger(to.errOut)
	err = f.audited(ctx, name, to, logger, func(ctx context.Context) error {
		return f.runHere(ctx, run, encoded, around, logger, line)
	})
	if errors.Is(err, errInUse) {
		return fmt.Errorf("%w that does not answer (%w): it is starting, stopping, or a maintenance command itself", err,
			noServer)
	}
	return err
}

func (f taskFlags) runHere(
	ctx context.Context, run task, args json.RawMessage, around outside, logger *slog.Logger,
	line func(string) error,
) (err error) {
	if err := checkPlace(f.Data, f.sharedFlags); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(f.Data, keysFolder)); err != nil && !f.shared() { // opening would make a store
		return &usageError{fmt.Sprintf("--data: %s contains no store (%v): expected the data folder of a server", f.Data, err)}
	}
	s, err := openStore(ctx, f.Data, f.storeFlags, around, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	return run(ctx, s.host, args, &lineWriter{line: line})
}

// lineWriter passes on complete lines. It may be written to concurrently, a line a call.
type lineWriter struct {
	line func(string) error

	mu   sync.Mutex // guards rest and calls of line
	rest []byte
}

// Write passes on the lines that p completes.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		line, rest, ended := bytes.Cut(w.rest, []byte("\n"))
		if !ended {
			return len(p), nil
		}
		text := string(line)
		w.rest = append(w.rest[:0], rest...)
		if err := w.line(text); err != nil {
			return 0, err
		}
	}
}

// taskPrinter prints the lines of a task. Progress is shown only on a terminal, in one line that is
// redrawn.
type taskPrinter struct {
	to       streams
	terminal bool
	drawn    bool
}

// eraseLine clears a terminal's line and goes to its beginning.
const eraseLine = "\r\x1b[K"

func (p *taskPrinter) print(line string) error {
	text, marked := strings.CutPrefix(line, progressMark)
	if !marked {
		p.clear()
		return p.to.printf("%s\n", text)
	}
	if !p.terminal {
		return nil
	}
	p.drawn = true
	_, err := io.WriteString(p.to.errOut, eraseLine+text)
	return err
}

func (p *taskPrinter) clear() {
	if p.drawn {
		_, _ = io.WriteString(p.to.errOut, eraseLine)
		p.drawn = false
	}
}

// isTerminal reports whether an output goes to a terminal. Other devices, such as /dev/null, are
// none.
func isTerminal(w io.Writer) bool { return terminalWidth(w) > 0 }
