package engine_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine"
	"packhorse/engine/enginetest"
	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
)

// TestFsckOfADamagedTable changes bits all over the tables of the key-value store. Fsck completes
// and reports every repository that cannot be read, and the store reports a damaged table.
func TestFsckOfADamagedTable(t *testing.T) {
	t.Parallel()
	odbtest.NeedsEmbedded(t, "it damages the tables of the keys")
	fs := vfs.NewMem()
	host, shut := enginetest.OpenOn(t, fs, engine.Config{})
	const repositories = 6
	for r := range repositories {
		repo := enginetest.Create(t, host, fmt.Sprint("r", r))
		for n := range 4 { // hot, and not to be compressed
			if _, err := upload(
				repo, acme, main, change{path: fmt.Sprint("f", n), content: string(noise(byte(16*r+n), 8<<10))},
			); err != nil {
				t.Fatal(err)
			}
		}
	}
	shut()
	hit, missed := 0, 0
	for _, table := range filesIn(t, fs, "keys", ".sst") {
		for part := range int64(6) {
			damaged := vfs.NewMem()
			for _, dir := range []string{"keys", "files"} {
				if _, err := vfs.Clone(fs, damaged, dir, dir); err != nil {
					t.Fatal(err)
				}
			}
			flipAt(t, damaged, table, size(t, damaged, table)*part/6)
			was, told := fsckDamaged(t, damaged, repositories)
			if was && !told {
				t.Errorf("bit in part %d of %s: a repository cannot be read, and fsck does not tell", part, table)
			}
			if was {
				hit++
			}
			if !told {
				missed++
			}
		}
	}
	if hit < 3 {
		t.Errorf("only %d times was a repository hit, %d times nothing was found", hit, missed)
	}
}

// fsckDamaged reads all repositories and checks them. It reports whether one could not be read, and
// whether each of those was reported.
func fsckDamaged(t *testing.T, fs vfs.FS, repositories int) (hit, told bool) {
	t.Helper()
	keys, err := kv.OpenPebble("keys",
		kv.PebbleOptions{FS: fs, MemoryBytes: 8 << 20, Logger: slog.New(slog.DiscardHandler)})
	if errors.Is(err, kv.ErrCorrupt) {
		return false, true
	}
	must(t, err)
	defer func() { _ = keys.Close() }() // a flush may meet the damage
	files, err := file.OpenDir("files", file.DirOptions{FS: filetest.AtomicRenames(fs)})
	must(t, err)
	defer func() { must(t, files.Close()) }()
	host, err := engine.Open(t.Context(), engine.Config{KV: keys, Files: files})
	if errors.Is(err, kv.ErrCorrupt) {
		return false, true
	}
	must(t, err)
	defer func() { must(t, host.Close(t.Context())) }()

	unread := map[string]bool{}
	for r := range repositories {
		name := fmt.Sprint("r", r)
		repo, err := host.Repository(t.Context(), enginetest.Org, name)
		for n := 0; n < 4 && err == nil; n++ {
			var content *engine.OpenFile
			if content, err = repo.File(t.Context(), engine.FileRequest{Path: fmt.Sprint("f", n)}); err == nil {
				content.Close()
			}
		}
		if err != nil {
			unread[name] = true
		}
	}
	found, anonymous := map[string]bool{}, 0
	for checked, err := range host.Fsck(t.Context(), engine.FsckOptions{}) {
		if err != nil {
			t.Fatalf("fsck ends: %v", err)
		}
		if !checked.Damaged() {
			continue
		}
		found[checked.Name] = true
		if checked.Name == "" {
			anonymous++
		}
	}
	for name := range unread {
		if !found[name] && anonymous == 0 {
			t.Errorf("fsck does not tell that %s is hit: %v", name, found)
		}
	}
	if len(unread) > 0 && !errors.Is(keys.Damage(), kv.ErrCorrupt) {
		t.Errorf("the store says %v", keys.Damage())
	}
	return len(unread) > 0, len(found) > 0
}
