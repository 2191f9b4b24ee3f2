package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAskAdminOthers asks a server of another user: the error says whose it is.
func TestAskAdminOthers(t *testing.T) {
	t.Parallel()
	socket := serveTasks(t, nil)
	want := ", the user of the server, or as root"
	if os.Geteuid() == 0 {
		want = "permission denied: run the command as root, the user of the server"
	} else if err := os.Chmod(socket, 0); err != nil {
		t.Fatal(err)
	}
	told := make(chan error)
	go func() {
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			if err := unix.Setfsuid(65534); err != nil {
				t.Error(err)
			}
		}
		told <- askAdmin(t.Context(), socket, "repos-list", []byte("{}"), patient(), nil)
	}()
	if err := <-told; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q at its end", err, want)
	}
	absent := filepath.Join(t.TempDir(), "absent", adminSocket)
	if got := usersOf(absent); got != "the user of the server, or as root" {
		t.Errorf("of no socket: %q", got)
	}
}
