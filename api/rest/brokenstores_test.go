package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/api/rest"
	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/fuzz/oracle"
	"packhorse/odb/odbtest"
	"packhorse/pack/object"
)

// TestReadsOfBrokenStores asks a host whose stores are closed, and one whose files were damaged.
func TestReadsOfBrokenStores(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it damages files in their folder")
	fs := vfs.NewMem()
	host, shut := enginetest.OpenOn(t, fs, engine.Config{})
	git := oracle.New(t)
	tip := git.Seed(oracle.History{Seed: 1, Commits: 700, Files: 40})
	id, err := object.ParseID(tip)
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Push(t, enginetest.Create(t, host, "r"), git.Input([]byte(tip+"\n"), "pack-objects", "--revs", "--stdout",
		"-q"),
		engine.Command{Name: "refs/heads/main", New: id})
	c := newClient(t)
	c.door = rest.New(rest.Config{Host: host})
	want := func(status int) {
		t.Helper()
		for name, read := range map[string]handler{
			"files": c.door.Files, "files/metadata": c.door.FilesMetadata, "commits": c.door.Commits, "commit": c.door.Commit,
			"file": c.door.File, "files/read": c.door.FilesRead,
		} {
			if name == "file" && status == http.StatusOK {
				continue // d0 is a folder
			}
			if got := c.odd().call(
				read, http.MethodGet, "/?path=d0&sha="+tip, strings.NewReader(`{"paths":["d0"]}`),
			); got.Status != status {
				t.Errorf("%s: %d %s, want %d", name, got.Status, got.Body, status)
			}
		}
	}
	want(http.StatusOK)
	shut()
	want(http.StatusServiceUnavailable)
	damageFiles(t, fs)
	host, shut = enginetest.OpenOn(t, fs, engine.Config{})
	defer shut()
	c.door = rest.New(rest.Config{Host: host})
	want(http.StatusInternalServerError)
}

// damageFiles overwrites the end of every segment file, so that none can be opened.
func damageFiles(t *testing.T, fs vfs.FS) {
	t.Helper()
	damaged := 0
	var visit func(dir string)
	visit = func(dir string) {
		names, err := fs.List(dir)
		if err != nil {
			return // a file
		}
		for _, name := range names {
			path := fs.PathJoin(dir, name)
			info, err := fs.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				visit(path)
				continue
			}
			if info.Size() < 4096 {
				continue
			}
			f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = f.WriteAt(make([]byte, 512), info.Size()-512); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			damaged++
		}
	}
	visit("files")
	if damaged == 0 {
		t.Fatal("nothing to damage")
	}
}
