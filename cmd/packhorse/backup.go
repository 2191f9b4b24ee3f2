package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"packhorse/engine"
	"packhorse/engine/backup"
	"packhorse/odb/file"
)

// backupCommand groups the subcommands for backups.
type backupCommand struct {
	Take   backupTakeCommand   `cmd:"" default:"withargs" help:"Make a consistent backup of every repository, through the running server or of a stopped server's folder."`
	List   backupListCommand   `cmd:"" help:"List the backups in a folder."`
	Check  backupCheckCommand  `cmd:"" help:"Verify every file of every backup in a folder by its SHA-256."`
	Forget backupForgetCommand `cmd:"" help:"Remove the backups that no --keep flag keeps, and the files used only by them."`
}

// backupTakeCommand copies a data folder.
type backupTakeCommand struct {
	Dest  string `arg:"" help:"Folder of the backups of this store; created if missing. Later backups copy only new files." type:"path" is:"new folder"`
	Prune bool   `help:"Remove all older backups in the folder afterwards. To keep some of them, use 'packhorse backup forget'."`

	taskFlags
}

// backupArgs are the arguments of the task. Dest is absolute.
type backupArgs struct {
	Dest  string
	Prune bool
}

// Run backs up through the server that has the folder open, or opens it itself.
func (c backupTakeCommand) Run(ctx context.Context, to streams) error {
	inside, err := filepath.Rel(c.Data, c.Dest)
	if err != nil {
		return err
	}
	if inside == "." || !strings.HasPrefix(inside, "..") {
		return &usageError{fmt.Sprintf("%s lies in the folder that is to be backed up", c.Dest)}
	}
	return c.run(ctx, "backup", backupArgs{Dest: c.Dest, Prune: c.Prune}, to)
}

// runBackup backs up, and prints the numbers of files and the damaged ones.
func runBackup(ctx context.Context, host *engine.Host, args backupArgs, out io.Writer) (err error) {
	dest, err := openBackups(args.Dest, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dest.Close()) }()
	shown := newProgress(out)
	report, err := host.Backup(ctx, dest, backup.Options{
		Prune: args.Prune,
		Progress: func(r backup.Report) {
			if r.FileCount == 0 {
				shown.tell(step{phase: "rows read", done: r.RowCount})
				return
			}
			shown.tell(step{
				phase: "copied", text: fmt.Sprintf("%s, %s, copied", quantity(r.FileCount, "file"), bytesOf(r.Bytes)),
				done: r.CopiedBytes, unit: bytesOf,
			})
		},
	})
	damaged, ok := errors.AsType[*backup.StoreDamagedError](err)
	if err != nil && !ok {
		return err
	}
	if _, err := fmt.Fprintf(out, "backup %d: %s, %s; %s, %s were new\n", report.Number,
		quantity(report.FileCount, "file"), quantity(report.Bytes, "byte"),
		quantity(report.CopiedCount, "file"), quantity(report.CopiedBytes, "byte")); err != nil {
		return err
	}
	if ok {
		for i := range damaged.Damage {
			if _, err := fmt.Fprintf(out, "damaged: %s\n", damaged.Damage[i].String()); err != nil {
				return err
			}
		}
		if args.Prune {
			return fmt.Errorf("%w; no older backup was removed", damaged)
		}
		return damaged
	}
	if args.Prune {
		_, err = fmt.Fprintf(out, "removed %s of older backups\n", quantity(report.PrunedCount, "file"))
	}
	if err == nil && report.AgedCount > 0 {
		_, err = fmt.Fprintf(out,
			"kept %s without a record of the store; packhorse backup forget removes such backups\n",
			quantity(report.AgedCount, "backup"))
	}
	return err
}

// openBackups opens a folder of backups.
func openBackups(dir string, readOnly bool) (*file.Dir, error) {
	if !readOnly {
		if err := keepPrivate(dir, file.Folders()...); err != nil {
			return nil, err
		}
	}
	dest, err := file.OpenDir(dir, file.DirOptions{ServerID: "backup", ReadOnly: readOnly})
	if errors.Is(err, file.ErrLocked) {
		return nil, fmt.Errorf("another backup into %s is running", dir)
	}
	if readOnly && errors.Is(err, fs.ErrNotExist) {
		return nil, &usageError{dir + " holds no backup"}
	}
	return dest, err
}

// withBackups calls use with a folder of backups.
func withBackups(dir string, readOnly bool, use func(*file.Dir) error) error {
	from, err := openBackups(dir, readOnly)
	if err != nil {
		return err
	}
	err = use(from)
	if errors.Is(err, backup.ErrNone) {
		err = &usageError{dir + " holds no backup"}
	}
	return errors.Join(err, from.Close())
}

// backupListCommand lists backups.
type backupListCommand struct {
	Dir string `arg:"" help:"Folder of the backups; it is not modified." type:"path" is:"folder"`
}

// Run prints a line for each backup, the oldest first.
func (c backupListCommand) Run(ctx context.Context, to streams) error {
	return withBackups(c.Dir, true, func(from *file.Dir) error {
		all, err := backup.List(ctx, from)
		if err == nil && len(all) == 0 {
			err = backup.ErrNone
		}
		if err != nil {
			return err
		}
		damaged := 0
		for i := range all {
			if all[i].Damage != nil {
				damaged++
			}
			if err := to.printf("%s\n", summaryLine(&all[i])); err != nil {
				return err
			}
		}
		if damaged > 0 {
			return fmt.Errorf("%d of %d backups are damaged", damaged, len(all))
		}
		return nil
	})
}

// summaryLine describes a backup.
func summaryLine(s *backup.Summary) string {
	if s.Damage != nil {
		return fmt.Sprintf("backup %d: damaged: %v", s.Number, s.Damage)
	}
	line := fmt.Sprintf("backup %d: %s, %s, %s", s.Number, s.Time.UTC().Format(time.RFC3339), quantity(s.FileCount, "file"),
		quantity(s.Bytes, "byte"))
	if s.Store != "" {
		line += ", store " + s.Store
	}
	if s.LostCount > 0 {
		line += fmt.Sprintf("; incomplete: without %s, damaged in the store", quantity(s.LostCount, "file"))
	}
	return line
}

// backupCheckCommand verifies backups.
type backupCheckCommand struct {
	Dir string `arg:"" help:"Folder of the backups; it is not modified." type:"path" is:"folder"`
}

// Run prints a line for each backup and each damage.
func (c backupCheckCommand) Run(ctx context.Context, to streams) error {
	printer := &taskPrinter{to: to, terminal: isTerminal(to.errOut)}
	defer printer.clear()
	shown := newProgress(&lineWriter{line: printer.print})
	return withBackups(c.Dir, true, func(from *file.Dir) error {
		count, bad := 0, 0
		told := func(files, bytes int64) {
			shown.tell(step{phase: "check", text: quantity(files, "file") + " verified", done: bytes, unit: bytesOf})
		}
		for checked, err := range backup.Check(ctx, from, told) {
			if err != nil {
				return err
			}
			count++
			lines := []string{summaryLine(&checked.Summary)}
			for _, damage := range checked.Damages {
				lines = append(lines, fmt.Sprintf("damaged: %v", damage))
			}
			if more := checked.DamageCount - int64(len(checked.Damages)); more > 0 {
				lines = append(lines, fmt.Sprintf("damaged besides: %s", quantity(more, "file")))
			}
			if err := printer.print(strings.Join(lines, "\n")); err != nil {
				return err
			}
			if checked.Damage != nil || checked.DamageCount > 0 || checked.LostCount > 0 {
				bad++
			}
		}
		if count == 0 {
			return backup.ErrNone
		}
		if bad > 0 {
			return fmt.Errorf("%d of %d backups are damaged or incomplete", bad, count)
		}
		verb := "are"
		if count == 1 {
			verb = "is"
		}
		return printer.print(fmt.Sprintf("%s %s whole", quantity(count, "backup"), verb))
	})
}

// backupForgetCommand removes backups.
type backupForgetCommand struct {
	Dir        string `arg:"" help:"Folder of the backups." type:"path" is:"own folder"`
	KeepLast   int    `help:"Number of newest backups to keep." placeholder:"N"`
	KeepDaily  int    `help:"Keep the newest backup of each of the last N days with a backup (UTC)." placeholder:"N"`
	KeepWeekly int    `help:"Keep the newest backup of each of the last N weeks with a backup." placeholder:"N"`
	Damaged    bool   `help:"Remove backups with a damaged manifest, too."`
}

// Run prints the removed backups. The newest complete backup always stays.
func (c backupForgetCommand) Run(ctx context.Context, to streams) error {
	if min(c.KeepLast, c.KeepDaily, c.KeepWeekly) < 0 || c.KeepLast+c.KeepDaily+c.KeepWeekly == 0 {
		return &usageError{"say what to keep: --keep-last, --keep-daily or --keep-weekly, with a number of 1 or more"}
	}
	if err := withBackups(c.Dir, true, func(*file.Dir) error { return nil }); err != nil {
		return err // before a folder is created for a wrong path
	}
	return withBackups(c.Dir, false, func(dest *file.Dir) error {
		policy := backup.Policy{Last: c.KeepLast, Daily: c.KeepDaily, Weekly: c.KeepWeekly}
		done, err := backup.Forget(ctx, dest, policy, c.Damaged)
		if errors.Is(err, backup.ErrDamaged) {
			return fmt.Errorf("%w; nothing was removed (--damaged removes such backups, too)", err)
		}
		if err != nil {
			return err
		}
		return to.printf("kept backups %s; removed %s, %s\n", numberList(done.Kept), quantity(len(done.Removed), "backup"),
			quantity(done.FileCount, "file"))
	})
}

func numberList(numbers []uint64) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(numbers)), ", "), "[]")
}

// bytesOf formats a size for people.
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
