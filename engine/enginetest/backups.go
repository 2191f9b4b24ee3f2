package enginetest

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/backup"
	"packhorse/odb/file"
	"packhorse/odb/file/filetest"
	"packhorse/odb/kv"
)

// OpenBackups opens the folder of backups in fs.
func OpenBackups(tb testing.TB, fs vfs.FS) (dest *file.Dir, shut func()) {
	tb.Helper()
	dest, err := file.OpenDir("backups", file.DirOptions{FS: filetest.AtomicRenames(fs)})
	if err != nil {
		tb.Fatal(err)
	}
	return dest, func() {
		tb.Helper()
		if err := dest.Close(); err != nil {
			tb.Error(err)
		}
	}
}

// RestoreBackup restores a backup into an empty file system: the embedded stores lie in its folders
// "keys" and "files" then.
func RestoreBackup(tb testing.TB, fs vfs.FS, from file.Store, options backup.Options) error {
	tb.Helper()
	files, err := file.OpenDir("files", file.DirOptions{FS: filetest.AtomicRenames(fs)})
	if err != nil {
		tb.Fatal(err)
	}
	keys, err := kv.NewRestoration("keys", kv.PebbleOptions{FS: fs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	_, err = backup.Restore(context.Background(), from, backup.Target{Keys: keys, Files: files}, options)
	return errors.Join(err, files.Close())
}

// CheckBackups holds every file of every backup against its checksums.
func CheckBackups(tb testing.TB, from file.Store) (all []backup.Checked) {
	tb.Helper()
	for checked, err := range backup.Check(tb.Context(), from, nil) {
		if err = errors.Join(append(checked.Damages, checked.Damage, err)...); err != nil {
			tb.Errorf("backup %d: %v", checked.Number, err)
		}
		all = append(all, checked)
	}
	return all
}
