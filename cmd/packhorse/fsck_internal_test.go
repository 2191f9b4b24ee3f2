package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// TestFsckEndsWithTheDamagedRepositories damages the segment of one of two repositories.
func TestFsckEndsWithTheDamagedRepositories(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	host, shut := enginetest.OpenOn(t, fs, engine.Config{})
	git := oracle.New(t)
	tip := git.Seed(oracle.History{Seed: 4, Commits: 300, Files: 40})
	id, err := object.ParseID(tip)
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Push(t, enginetest.Create(t, host, "web/site"), git.Input([]byte(tip+"\n"), "pack-objects", "--revs",
		"--stdout", "-q"),
		engine.Command{Name: "refs/heads/main", New: id})
	enginetest.Create(t, host, "sound")
	shut()
	var name string
	for _, dir := range listAll(t, fs, "files") {
		if strings.HasSuffix(dir, ".segment") {
			name = dir
		}
	}
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.WriteAt([]byte("damage"), 100)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	host, shut = enginetest.OpenOn(t, fs, engine.Config{})
	defer shut()
	var out bytes.Buffer
	if err := runFsck(t.Context(), host, fsckArgs{}, &out); !errors.Is(err, errDamaged) {
		t.Errorf("fsck: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "damaged: acme/web/site: ") ||
		!strings.Contains(last, "restore a backup") {
		t.Errorf("the last line is %q", last)
	}
	if total := lines[len(lines)-2]; !strings.HasPrefix(total, "2 repositories, ") ||
		!strings.HasSuffix(total, " 1 repository damaged") {
		t.Errorf("before it: %q", total)
	}
}

// listAll returns the paths of the files below a folder.
func listAll(t *testing.T, fs vfs.FS, dir string) (paths []string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if info, err := fs.Stat(path); err == nil && info.IsDir() {
			paths = append(paths, listAll(t, fs, path)...)
		} else {
			paths = append(paths, path)
		}
	}
	return paths
}
