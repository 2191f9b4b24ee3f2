package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"packhorse/api/audit"
	"packhorse/pack/object"
)

// open opens a log, which is closed at the end of the test.
func open(t *testing.T, options audit.Options) *audit.Writer {
	t.Helper()
	w, err := audit.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close(t.Context()) })
	return w
}

func closed(t *testing.T, w *audit.Writer) {
	t.Helper()
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// actionsIn returns the actions of the lines of a text, each of which has to be JSON.
func actionsIn(t *testing.T, text []byte) (all []string) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var r audit.Record
		if err := json.Unmarshal(line, &r); err != nil || line[len(line)-1] != '\n' {
			t.Errorf("%v in %q", err, line)
		}
		all = append(all, r.Action)
	}
	return all
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A line has the fields of its record alone, with the time first, and a new file is private.
func TestLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	w := open(t, audit.Options{To: path, Logger: slog.New(slog.DiscardHandler)})
	id := object.ID{1}
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.FixedZone("", 3600))
	w.Write(&audit.Record{
		Time: at, Via: audit.HTTP, RequestID: "1-2", Organization: "acme", Repository: "web/site", Action: "merge",
		Subject: "<ci>\n", Status: 200, SentBytes: 12,
		Changes: []audit.Change{{Ref: "refs/heads/main", New: id, Sequence: 7}},
	})
	w.Write(&audit.Record{Time: at, Via: audit.Background, Action: "\xff"})
	closed(t, w)
	want := `{"time":"2026-03-04T04:06:07.000008Z","via":"http","request_id":"1-2","organization":"acme",` +
		`"repository":"web/site","action":"merge","sub":"<ci>\n","status":200,"received_bytes":0,"sent_bytes":12,` +
		`"ref_changes":[{"ref":"refs/heads/main","old":"` + object.ZeroID.String() + `","new":"` + id.String() +
		`","sequence":7}]}` + "\n" +
		`{"time":"2026-03-04T04:06:07.000008Z","via":"background","action":"\ufffd","received_bytes":0,"sent_bytes":0}` + "\n"
	if got := string(read(t, path)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if w.Records() != 2 || w.Failures() != 0 {
		t.Errorf("%d records, %d failures", w.Records(), w.Failures())
	}
	w.Write(&audit.Record{Action: "late"})
	if w.Records() != 2 || w.Failures() != 1 {
		t.Errorf("after Close: %d records, %d failures", w.Records(), w.Failures())
	}
}

// While many write, the file is rotated many times: no record is lost, none is torn, and those of
// one writer stay in order.
func TestRotation(t *testing.T) {
	t.Parallel()
	const writers, each, rotations = 8, 300, 20
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	w := open(t, audit.Options{To: path, QueueBytes: 4 << 10})
	var running sync.WaitGroup
	halfway := make(chan struct{}, writers)
	for i := range writers {
		running.Go(func() {
			for n := range each {
				if n == each/2 {
					halfway <- struct{}{}
				}
				w.Write(&audit.Record{Action: fmt.Sprint(i), RequestID: fmt.Sprint(n), UserAgent: strings.Repeat("u", n)})
			}
		})
	}
	rotate := func(i int) {
		if err := os.Rename(path, filepath.Join(dir, fmt.Sprintf("audit.%02d", i))); err != nil {
			t.Error(err)
		}
		if err := w.Reopen(); err != nil {
			t.Error(err)
		}
	}
	for i := range rotations {
		if i == rotations/2 {
			<-halfway
		}
		rotate(i)
	}
	running.Wait()
	rotate(rotations)
	next := make(map[string]int)
	for i := range rotations + 1 {
		for line := range bytes.Lines(read(t, filepath.Join(dir, fmt.Sprintf("audit.%02d", i)))) {
			var r audit.Record
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatalf("%v in %q", err, line)
			}
			if r.RequestID != fmt.Sprint(next[r.Action]) {
				t.Fatalf("writer %s: %s comes when %d is due", r.Action, r.RequestID, next[r.Action])
			}
			next[r.Action]++
		}
	}
	for i := range writers {
		if count := next[fmt.Sprint(i)]; count != each {
			t.Errorf("writer %d: %d records", i, count)
		}
	}
}

// A file that cannot be opened again leaves the former one in use.
func TestReopenFails(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "logs")
	must(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "audit.jsonl")
	w := open(t, audit.Options{To: path})
	moved := dir + ".old"
	must(t, os.Rename(dir, moved))
	if err := w.Reopen(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	w.Write(&audit.Record{Action: "after"})
	closed(t, w)
	if got := actionsIn(t, read(t, filepath.Join(moved, "audit.jsonl"))); len(got) != 1 || got[0] != "after" {
		t.Errorf("got %v", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What a killed server has not finished stays in a line of its own.
func TestTornLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	must(t, os.WriteFile(path, []byte("{\"action\":\"whole\"}\n{\"acti"), 0o640))
	w := open(t, audit.Options{To: path})
	w.Write(&audit.Record{Action: "next"})
	closed(t, w)
	lines := strings.Split(string(read(t, path)), "\n")
	if len(lines) != 4 || lines[1] != `{"acti` || lines[3] != "" {
		t.Fatalf("got %q", lines)
	}
	if got := actionsIn(t, []byte(lines[0]+"\n"+lines[2]+"\n")); got[0] != "whole" || got[1] != "next" {
		t.Errorf("got %v", got)
	}
}

// disk is an output with little room.
type disk struct {
	room int // in bytes
	text bytes.Buffer
}

func (d *disk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.room -= n
	d.text.Write(p[:n])
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// While the disk is full, records are lost, counted and reported once, and nobody waits; afterwards
// the next record is whole, and the end of the trouble is reported.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, log := &disk{room: 60}, &bytes.Buffer{}
		w := open(t, audit.Options{To: audit.Stdout, Out: out, Logger: slog.New(slog.NewTextHandler(log, nil))})
		write := func(action string) {
			w.Write(&audit.Record{Action: action})
			synctest.Wait() // until it is written, or lost
		}
		for range 3 {
			write("lost")
		}
		out.room = 1 << 20
		write("first")
		write("second")
		closed(t, w)
		torn, rest, _ := strings.Cut(out.text.String(), "\n")
		if len(torn) != 60 || json.Valid([]byte(torn)) {
			t.Errorf("before the disk was full: %q", torn)
		}
		if got := actionsIn(t, []byte(rest)); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("got %v", got)
		}
		if w.Records() != 2 || w.Failures() != 3 {
			t.Errorf("%d records, %d failures", w.Records(), w.Failures())
		}
		for _, message := range []string{"failed to write to the audit log", "the audit log is written again"} {
			if strings.Count(log.String(), message) != 1 {
				t.Errorf("%q: logged\n%s", message, log)
			}
		}
	})
}

// gate is an output that takes nothing until it is opened.
type gate struct {
	opened chan struct{}
	text   bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.opened
	return g.text.Write(p)
}

// When the queue is full a writer waits, and no record is dropped; a Close whose time is over gives
// up.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &gate{opened: make(chan struct{})}
		w := open(t, audit.Options{To: audit.Stdout, Out: out, QueueBytes: 300})
		w.Write(&audit.Record{Action: "taken"})
		synctest.Wait()
		w.Write(&audit.Record{Action: "queued"})
		w.Write(&audit.Record{Action: "queued"})
		var passed atomic.Int64
		for range 20 {
			go func() {
				w.Write(&audit.Record{Action: "waits", UserAgent: strings.Repeat("x", 200)})
				passed.Add(1)
			}()
		}
		synctest.Wait()
		if passed.Load() > 0 {
			t.Errorf("%d records got into a queue that is full", passed.Load())
		}
		close(out.opened)
		synctest.Wait()
		closed(t, w)
		got := actionsIn(t, out.text.Bytes())
		if len(got) != 23 || got[2] != "queued" || got[3] != "waits" || passed.Load() != 20 {
			t.Errorf("%d have passed, got %v", passed.Load(), got)
		}
		if w.Records() != 23 || w.Failures() != 0 {
			t.Errorf("%d records, %d failures", w.Records(), w.Failures())
		}

		stuck := &gate{opened: make(chan struct{})}
		defer close(stuck.opened)
		w = open(t, audit.Options{To: audit.Stdout, Out: stuck})
		w.Write(&audit.Record{Action: "taken"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
	})
}

// Messages to syslog are of authpriv, and stay JSON when they are too long for it.
func TestSyslog(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "log")
	daemon, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = daemon.Close() })
	w := open(t, audit.Options{To: audit.Syslog, Socket: socket, Logger: slog.New(slog.DiscardHandler)})
	long := strings.Repeat("\x01ä", 4000)
	changes := make([]audit.Change, 500)
	for i := range changes {
		changes[i] = audit.Change{Ref: fmt.Sprintf("refs/heads/%04d", i), Sequence: 9}
	}
	for _, test := range []struct {
		record  audit.Record
		kept    int
		leftOut int
	}{
		{audit.Record{Action: "short", Changes: changes[:3]}, 3, 0},
		{audit.Record{Action: "changes", Changes: changes}, 31, 469},
		{audit.Record{
			Action: "texts", Organization: long, Repository: long, Subject: long, KeyID: long, UserAgent: long,
			TokenHash: strings.Repeat("a", 32), Error: "policy_denied", Changes: changes,
		}, 0, 500},
	} {
		w.Write(&test.record)
		message := make([]byte, 64<<10)
		n, err := daemon.Read(message)
		must(t, err)
		text := string(message[:n])
		header, _, _ := strings.Cut(text, "{")
		var got audit.Record
		if err := json.Unmarshal([]byte(text[len(header):]), &got); err != nil || n > 8<<10 {
			t.Errorf("%d bytes, %v in %s", n, err, text)
		}
		const authprivInfo = "<86>"
		if !strings.HasPrefix(header, authprivInfo) || !strings.Contains(header, "packhorse[") {
			t.Errorf("header %q", header)
		}
		if len(got.Changes) != test.kept || got.LeftOut != test.leftOut || got.Shortened != (test.leftOut > 0) {
			t.Errorf("%s: %d changes, %d left out, shortened: %t", got.Action, len(got.Changes), got.LeftOut, got.Shortened)
		}
	}
	must(t, w.Reopen())
	w.Write(&audit.Record{Action: "again"})
	message := make([]byte, 1<<10)
	if n, err := daemon.Read(message); err != nil || !strings.Contains(string(message[:n]), `"again"`) {
		t.Errorf("%v, %s", err, message)
	}
}

// What cannot be opened is an error that names it.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, options := range []audit.Options{
		{To: dir}, {To: filepath.Join(dir, "none", "audit")}, {To: audit.Syslog, Socket: filepath.Join(dir, "none")},
	} {
		if _, err := audit.Open(options); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", options.To, err)
		}
	}
}

// panicking is a destination that panics at the first write.
type panicking struct {
	bytes.Buffer
	broken bool
}

func (p *panicking) Write(b []byte) (int, error) {
	if !p.broken {
		p.broken = true
		panic("a bug")
	}
	return p.Buffer.Write(b)
}

// TestPanickingDestination loses the records that a panic has met, and writes those behind them.
func TestPanickingDestination(t *testing.T) {
	t.Parallel()
	out := &panicking{}
	w := open(t, audit.Options{To: audit.Stdout, Out: out, Logger: slog.New(slog.DiscardHandler)})
	for _, action := range []string{"lost", "kept"} {
		w.Write(&audit.Record{Action: action})
		must(t, w.Reopen()) // the queue is empty then
	}
	closed(t, w)
	if got := actionsIn(t, out.Bytes()); !slices.Equal(got, []string{"kept"}) || w.Failures() != 1 || w.Records() != 1 {
		t.Errorf("wrote %q, %d records, %d failures", got, w.Records(), w.Failures())
	}
}
