package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"packhorse/engine"
	"packhorse/engine/backup"
	"packhorse/odb/file"
)

// backupCommand copies a data folder.
type backupCommand struct {
	Dest  string `arg:"" help:"Folder of the backups; it is made if it does not exist. A second backup into it copies only what is new." type:"path"`
	Prune bool   `help:"Afterwards remove the older backups in the folder, and what only they need."`

	taskFlags
}

// backupArgs are the arguments of the task. Dest is absolute.
type backupArgs struct {
	Dest  string
	Prune bool
}

// Run backs up through the server that has the folder open, or opens it itself.
func (c backupCommand) Run(ctx context.Context, to streams) error {
	inside, err := filepath.Rel(c.Data, c.Dest)
	if err != nil {
		return err
	}
	if inside == "." || !strings.HasPrefix(inside, "..") {
		return &usageError{fmt.Sprintf("%s lies in the folder that is to be backed up", c.Dest)}
	}
	return c.run(ctx, "backup", backupArgs{Dest: c.Dest, Prune: c.Prune}, to)
}

// runBackup backs up, and prints what was copied.
func runBackup(ctx context.Context, host *engine.Host, args backupArgs, out io.Writer) (err error) {
	dest, err := openBackups(args.Dest, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dest.Close()) }()
	tell := progress(out)
	report, err := host.Backup(ctx, dest, backup.Options{
		Prune: args.Prune,
		Progress: func(r backup.Report) {
			tell("%d files, %s; %s copied", r.FileCount, bytesOf(r.Bytes), bytesOf(r.CopiedBytes))
		},
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "backup %d: %d files, %d bytes; %d files, %d bytes were new\n",
		report.Number, report.FileCount, report.Bytes, report.CopiedCount, report.CopiedBytes); err != nil {
		return err
	}
	if args.Prune {
		_, err = fmt.Fprintf(out, "%d files of older backups were removed\n", report.PrunedCount)
	}
	return err
}

// openBackups opens a folder of backups.
func openBackups(dir string, readOnly bool) (*file.Dir, error) {
	dest, err := file.OpenDir(dir, file.DirOptions{ServerID: "backup", ReadOnly: readOnly})
	if errors.Is(err, file.ErrLocked) {
		return nil, fmt.Errorf("a backup into %s is under way", dir)
	}
	return dest, err
}

// bytesOf writes a size for people.
func bytesOf(size int64) string {
	const unit = 1 << 10
	value, units := float64(size), "BKMGTPE"
	for value >= unit && len(units) > 1 {
		value, units = value/unit, units[1:]
	}
	if units[0] == 'B' {
		return fmt.Sprintf("%d B", size)
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}
