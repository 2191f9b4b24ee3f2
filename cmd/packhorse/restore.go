package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"packhorse/engine/backup"
	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// restoreCommand makes a data folder of a backup.
type restoreCommand struct {
	Src    string `arg:"" help:"Folder of the backups; it is not modified." type:"path" is:"folder"`
	Data   string `help:"Folder to restore into; it must be empty or missing." placeholder:"DIR" required:"" type:"path" is:"empty folder"`
	Number uint64 `help:"Number of the backup; 0 for the newest." default:"0"`

	Incomplete bool `help:"Accept a backup that lacks files. 'packhorse fsck' then lists the repositories affected."`

	logFlags
}

// restoringMark is a file in a folder into which a backup is being restored. All commands refuse
// such a folder.
const restoringMark = "RESTORING"

// Run restores. If it fails it removes the files that it has written.
func (c restoreCommand) Run(ctx context.Context, to streams) (err error) {
	from, err := openBackups(c.Src, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	made, err := takeEmpty(c.Data)
	if err != nil {
		return err
	}
	report, err := c.restore(ctx, from, to)
	if err != nil {
		if errors.Is(err, backup.ErrNone) {
			err = &usageError{c.Src + " holds no backup"}
			if c.Number != 0 {
				err = &usageError{fmt.Sprintf("--number: %s has no backup number %d: packhorse backup list prints those that it has",
					c.Src, c.Number)}
			}
		}
		if errors.Is(err, backup.ErrIncomplete) {
			err = fmt.Errorf("%w; use --incomplete to restore it anyway, or --number to restore an older one", err)
		}
		if err = errors.Join(err, clearFolder(c.Data)); made {
			err = errors.Join(err, os.Remove(c.Data))
		}
		return err
	}
	if report.LostCount > 0 {
		to.complain(
			"restored without %s, damaged when backup %d was made: packhorse fsck --data %s lists the repositories affected",
			quantity(report.LostCount, "file"), report.Number, c.Data,
		)
	}
	return to.printf("restored backup %d into %s: %s, %s\n", report.Number, c.Data, quantity(report.FileCount, "file"),
		quantity(report.Bytes, "byte"))
}

func (c restoreCommand) restore(ctx context.Context, from *file.Dir, to streams) (_ backup.Report, err error) {
	files, err := file.OpenDir(filepath.Join(c.Data, filesFolder), file.DirOptions{})
	if err != nil {
		return backup.Report{}, err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	keys, err := kv.NewRestoration(filepath.Join(c.Data, keysFolder), kv.PebbleOptions{Logger: c.logger(to.errOut)})
	if err != nil {
		return backup.Report{}, err
	}
	printer := &taskPrinter{to: to, terminal: isTerminal(to.errOut)}
	defer printer.clear()
	shown := newProgress(&lineWriter{line: printer.print})
	report, err := backup.Restore(ctx, from, backup.Target{Keys: keys, Files: files}, backup.Options{
		Number:     c.Number,
		Incomplete: c.Incomplete,
		Progress: func(r backup.Report) {
			shown.tell(step{
				phase: "restore", text: quantity(r.FileCount, "file") + " restored", done: r.Bytes, total: r.TotalBytes, unit: bytesOf,
			})
		},
	})
	if err != nil {
		return report, err
	}
	if err := os.Remove(filepath.Join(c.Data, restoringMark)); err != nil {
		return report, err
	}
	return report, syncFolder(c.Data)
}

// takeEmpty makes a folder, if it does not exist, and marks it. It reports whether it has made it.
// It refuses one with anything in it.
func takeEmpty(dir string) (made bool, err error) {
	_, err = os.Stat(dir)
	made = errors.Is(err, fs.ErrNotExist)
	if err := keepPrivate(dir); err != nil {
		return false, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return made, err
	}
	if len(entries) > 0 {
		return made, fmt.Errorf("%s is not empty: it holds %s", dir, entries[0].Name())
	}
	if err := os.WriteFile(filepath.Join(dir, restoringMark), nil, 0o600); err != nil {
		return made, err
	}
	return made, syncFolder(dir)
}

// clearFolder removes the content of a folder that takeEmpty has taken, the mark last.
func clearFolder(dir string) error {
	for _, name := range []string{filesFolder, keysFolder, restoringMark} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// checkRestored returns an error for a folder into which a backup was not restored to the end.
func checkRestored(dir string) error {
	_, err := os.Stat(filepath.Join(dir, restoringMark))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil: // which says nothing of the mark
		return &usageError{fmt.Sprintf("--data: %v", expected(err, "a folder that this user can write to"))}
	}
	return &usageError{fmt.Sprintf(
		"%s contains a partly restored backup: the restore is running or was interrupted; remove the folder and restore again",
		dir,
	)}
}

// syncFolder makes the entries of a folder durable.
func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
