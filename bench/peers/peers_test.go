package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"packhorse/bench/process"
)

// TestJobs runs every job that git http-backend can do, and looks at the answers.
func TestJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: takes some seconds")
	}
	dir := t.TempDir()
	src, err := openSource(t.Context(), "", dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := startHTTPBackend(t.Context(), filepath.Join(dir, "git"))
	if errors.Is(err, errNoPeer) {
		t.Skipf("skipped: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	b := &bench{dir: dir, source: src, refs: 50, large: 3 << 20, pause: time.Millisecond, log: io.Discard}
	if err := b.prepare(t.Context(), []peer{p}); err != nil {
		t.Fatal(err)
	}
	report := report{source: src, theirs: p.name(), runs: 1, machine: "a machine"}
	for _, j := range jobs() {
		s, err := b.round(t.Context(), j, p)
		if errors.Is(err, errCannot) {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", j.name, err)
		}
		report.results = append(report.results, result{job: j, samples: map[string][]sample{p.name(): {s}}})
		if s.wall <= 0 {
			t.Errorf("%s: no time passed: %+v", j.name, s)
		}
		if strings.HasPrefix(j.name, "full clone") && s.objects != int64(src.objects) {
			t.Errorf("%s: %d objects, the source has %d", j.name, s.objects, src.objects)
		}
	}
	if err := report.write(dir, "generated"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "generated.md"))
	if err != nil || !strings.Contains(string(text), "| **full clone**") {
		t.Errorf("report %q, %v", text, err)
	}
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("skipped: no /proc")
	}
	// A process whose child burns CPU time and ends.
	root := exec.CommandContext(t.Context(), "sh", "-c",
		`read go; sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo done; read stop`)
	stdin, err := root.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := root.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := root.Start(); err != nil {
		t.Fatal(err)
	}
	used, err := measure(t.Context(), root.Process.Pid, func() error {
		if _, err := io.WriteString(stdin, "go\n"); err != nil {
			return err
		}
		_, err := stdout.Read(make([]byte, 8))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if used.cpu < 2*process.Tick || used.cpu > time.Minute || used.anonymous <= 0 {
		t.Errorf("used %+v", used)
	}
	if err := errors.Join(stdin.Close(), root.Wait()); err != nil && root.ProcessState.ExitCode() > 1 {
		t.Error(err)
	}
}

func TestMeasureFails(t *testing.T) {
	t.Parallel()
	failure := errors.New("the job failed")
	if _, err := measure(context.Background(), os.Getpid(), func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}
}
