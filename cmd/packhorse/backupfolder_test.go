package main_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestBackupAfterDamage cuts off a segment of the store between two backups. The second one fails
// and names file and repository, and both can be restored.
func TestBackupAfterDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, dest := filepath.Join(dir, "data"), filepath.Join(dir, "backups")
	server := start(t, packhorsetest.Options{Dir: dir})
	commit(t, server, create(t, server, "site"), 1, 300_000)
	if got := packhorse(t, nil, "backup", dest, "--data", data); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(data, "files", "*", "*", "*.segment"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %q, %v", segments, err)
	}
	if err := os.Truncate(segments[0], 1000); err != nil {
		t.Fatal(err)
	}
	got := packhorse(t, nil, "backup", "--prune", dest, "--data", data)
	told := got.out + got.errOut
	if got.status != 1 || !strings.Contains(told, filepath.Base(segments[0])) || !strings.Contains(told, "/site") {
		t.Errorf("the second backup: %+v", got)
	}
	for _, number := range []string{"1", "2"} {
		target := filepath.Join(dir, "restored"+number)
		if got := packhorse(t, nil, "restore", dest, "--data", target, "--number", number); got.status != 0 {
			t.Errorf("restoring backup %s: %+v", number, got)
			continue
		}
		if got := packhorse(t, nil, "fsck", "--data", target); got.status != 0 {
			t.Errorf("fsck of backup %s: %+v", number, got)
		}
	}
}

// TestBackupFolder lists, checks and forgets backups, and has the folder refuse another store.
func TestBackupFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, dest := filepath.Join(dir, "data"), filepath.Join(dir, "backups")
	server := start(t, packhorsetest.Options{Dir: dir})
	token := create(t, server, "site")
	for seed := range uint64(4) {
		commit(t, server, token, seed, 300_000)
		if got := packhorse(t, nil, "backup", dest, "--data", data); got.status != 0 {
			t.Fatalf("%+v", got)
		}
	}
	other := t.TempDir()
	stranger := start(t, packhorsetest.Options{Dir: other})
	create(t, stranger, "other")
	empty := t.TempDir()
	steps := []struct {
		args      []string
		status    int
		out, says string
	}{
		{
			[]string{"backup", "--prune", dest, "--data", filepath.Join(other, "data")},
			2,
			"",
			"the folder holds backups of store ",
		},
		{[]string{"backup", "list", dest}, 0, "backup 1: ", ""},
		{[]string{"backup", "check", dest}, 0, "4 backups are whole", ""},
		{[]string{"backup", "forget", dest}, 2, "", "--keep-last"},
		{[]string{"backup", "forget", dest, "--keep-last", "2"}, 0, "kept backups 3, 4; removed 2 backups, ", ""},
		{[]string{"backup", "check", dest}, 0, "2 backups are whole", ""},
		{[]string{"restore", dest, "--data", filepath.Join(dir, "restored"), "--number", "1"}, 2, "", "--number: " + dest + " has no backup number 1"},
		{[]string{"restore", dest, "--data", filepath.Join(dir, "restored"), "--number", "3"}, 0, "restored backup 3", ""},
		{[]string{"restore", empty, "--data", filepath.Join(dir, "none")}, 2, "", empty + " holds no backup"},
		{[]string{"backup", "list", empty}, 2, "", empty + " holds no backup"},
		{[]string{"backup", "forget", empty, "--keep-last", "1"}, 2, "", empty + " holds no backup"},
	}
	for _, step := range steps {
		got := packhorse(t, nil, step.args...)
		if got.status != step.status || !strings.Contains(got.out, step.out) || !strings.Contains(got.errOut, step.says) {
			t.Errorf("%q: %+v, want status %d, %q and %q", step.args, got, step.status, step.out, step.says)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder was made for a restore of nothing: %v", err)
	}
	if found, err := os.ReadDir(empty); err != nil || len(found) != 0 {
		t.Errorf("the empty folder holds %v, %v", found, err)
	}
	segments, err := filepath.Glob(filepath.Join(dest, "settled", "*", "*.segment"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("segments %q, %v", segments, err)
	}
	slices.SortFunc(segments, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	if err := os.Truncate(segments[len(segments)-1], 1000); err != nil {
		t.Fatal(err)
	}
	got := packhorse(t, nil, "backup", "check", dest)
	if got.status != 1 || !strings.Contains(got.out, filepath.Base(segments[len(segments)-1])) ||
		!strings.Contains(got.errOut, "1 of 2 backups are damaged") {
		t.Errorf("a damaged backup: %+v", got)
	}
}
