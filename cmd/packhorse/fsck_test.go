package main_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

func TestFsck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	server := start(t, packhorsetest.Options{Dir: dir})
	token := create(t, server, "checked")
	commit(t, server, token, 1, 1)

	const sound = "1 repository, 3 objects, 0 repositories damaged\n"
	if got := packhorse(t, nil, "fsck", "--data", data); got.status != 0 || got.out != sound {
		t.Errorf("through the server: %+v", got)
	}
	if info, err := os.Stat(filepath.Join(data, "admin.sock")); err != nil || info.Mode().Perm() != 0o600 ||
		info.Mode().Type() != fs.ModeSocket {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	if err := server.Kill(); err != nil { // as a crash does: the socket stays
		t.Fatal(err)
	}
	if got := packhorse(t, nil, "fsck", "--data", data); got.status != 0 || got.out != sound {
		t.Errorf("in the folder: %+v", got)
	}

	if got := packhorse(t, nil, "fsck", "--data", t.TempDir()); got.status != 2 ||
		!strings.Contains(got.errOut, "contains no store") {
		t.Errorf("in an empty folder: %+v", got)
	}
	damage(t, filepath.Join(data, "keys"))
	if got := packhorse(t, nil, "fsck", "--data", data); got.status != 1 || got.out == sound {
		t.Errorf("in a damaged folder: %+v", got)
	}
}

// damage flips bits in every table and log of a key-value store.
func damage(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		if ext := filepath.Ext(name); ext != ".sst" && ext != ".log" {
			continue
		}
		bytes, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range min(len(bytes), 512) {
			bytes[i] ^= 0x55
			damaged++
		}
		if err := os.WriteFile(name, bytes, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if damaged == 0 {
		t.Fatalf("no bytes to damage in %s", dir)
	}
}
