package main_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/oracle"
)

// wideOpen returns a program that runs the binary under test with the widest umask.
func wideOpen(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wide")
	oracle.WriteScript(t, path, fmt.Sprintf("#!/bin/sh\numask 000\nexec %q \"$@\"\n", bin))
	return path
}

// closed checks that other users have no access to anything below dir.
func closed(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		files++
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil || files < 5 {
		t.Errorf("%d files in %s, %v", files, dir, err)
	}
}

// TestPrivate serves, backs up and restores with the widest umask, and closes files that were open
// before.
func TestPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, dest, restored := filepath.Join(dir, "data"), filepath.Join(dir, "backups"), filepath.Join(dir, "restored")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o755); err != nil {
		t.Fatal(err)
	}
	wide := wideOpen(t)
	server := start(t, packhorsetest.Options{Bin: wide, Dir: dir})
	commit(t, server, create(t, server, "site"), 1, 300_000)
	if got := packhorse(t, nil, "backup", dest, "--data", data); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	closed(t, data)
	closed(t, dest)
	if warning := server.Output(); !strings.Contains(warning, "chmod 700") || !strings.Contains(warning, data) {
		t.Errorf("the server says of the open folder: %s", warning)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := runBinary(t, wide, nil, "restore", dest, "--data", restored); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	closed(t, restored)

	for _, open := range []string{filepath.Join(data, "keys"), filepath.Join(data, "files"), filepath.Join(dest,
		"settled")} {
		if err := os.Chmod(open, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	got := runBinary(t, wide, nil, "backup", dest, "--data", data)
	if got.status != 0 || strings.Contains(got.errOut, "chmod") {
		t.Fatalf("%+v", got)
	}
	closed(t, data)
	closed(t, dest)
}
