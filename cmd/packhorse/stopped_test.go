package main_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestStoppedServer runs commands beside a server that is suspended: they print the reason of the
// wait, and end.
func TestStoppedServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	server := start(t, packhorsetest.Options{Dir: dir})
	suspend(t, server)
	for _, args := range [][]string{{"gc"}, {"fsck"}, {"backup", filepath.Join(dir, "backups")}} {
		got := packhorse(t, nil, append(args, "--data", data, "--wait", "100ms")...)
		if got.status != 1 || !strings.Contains(got.errOut, "the server that has "+data+" open has not answered for 100ms") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	wake(t, server)
	if got := packhorse(t, nil, "gc", "--data", data); got.status != 0 {
		t.Errorf("when it goes on: %+v", got)
	}
}

// suspend suspends a server, and returns when it stands still.
func suspend(t *testing.T, server *packhorsetest.Server) {
	t.Helper()
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus // the signal alone does not say when the last thread stands still
	if _, err := syscall.Wait4(server.PID(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("status %x, %v", status, err)
	}
}

// wake lets a suspended server go on.
func wake(t *testing.T, server *packhorsetest.Server) {
	t.Helper()
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
