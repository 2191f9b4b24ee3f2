// Package backup copies the stores of a host into a folder, and restores stores from it.
//
// A backup is of one instant: a checkpoint of the key-value store, and the files that it names. Of
// a store that makes none, a database, the rows are copied into the form of one. Files are
// immutable, so that the next backup into the same folder copies only new ones. Start at [Write]
// and [Restore].
//
// # In the folder
//
// It is a [file.Store] of its own, for the backups of one store. Files of pools lie in it under
// their names, files of the key-value store under the SHA-256 of their content, and each backup is
// a manifest, written last, that names all files with their checksums. So an interrupted backup
// does not exist, and earlier ones stay as they are.
//
// # Damage
//
// A file is checked against its own checksums while it is copied, and a file that fails is not
// stored. A copy is replaced only when it differs from the manifest, and only by a file that
// matches it: damage in the store never reaches an older backup. For a file of pools that is
// damaged in the store, the manifest names an older copy, or else lists the file as lost; a damaged
// table of the key-value store ends the backup.
package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/kv"
)

// StoreIDSize is the size of a store's id in bytes; it is written in hexadecimal digits.
const StoreIDSize = 16

// Facts that a caller decides on.
var (
	// ErrNone says that a folder holds no backup, or not the requested one.
	ErrNone = errors.New("backup: not found")
	// ErrDamaged says that a file of a backup is missing or has changed; the error is a
	// [DamagedError].
	ErrDamaged = errors.New("backup: damaged")
	// ErrStoreDamaged says that files of the store are damaged; the error is a [StoreDamagedError].
	ErrStoreDamaged = errors.New("backup: the store is damaged")
	// ErrStranger says that a folder holds the backups of another store; the error is a
	// [StrangerError].
	ErrStranger = errors.New("backup: the folder belongs to another store")
	// ErrIncomplete says that a backup lacks files that were damaged when it was made.
	ErrIncomplete = errors.New("backup: incomplete")
)

// DamagedError is [ErrDamaged] with its evidence.
type DamagedError struct{ File, Why string }

func (e *DamagedError) Error() string { return fmt.Sprintf("backup: file %s %s", e.File, e.Why) }

// Is reports whether target is [ErrDamaged].
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// StrangerError is [ErrStranger] with both ids.
type StrangerError struct{ Folder, Store string }

func (e *StrangerError) Error() string {
	return fmt.Sprintf("the folder holds backups of store %s, and this is store %s: use a folder for each store", e.Folder,
		e.Store)
}

// Is reports whether target is [ErrStranger].
func (e *StrangerError) Is(target error) bool { return target == ErrStranger }

// Damage is a file of the store that failed its checks.
type Damage struct {
	File string
	Why  string
	// Repositories use the file, as organization/name.
	Repositories []string
	// Kept says that an older backup holds the undamaged file, and the new one names that copy.
	Kept bool
}

func (d *Damage) String() string {
	owners, fate := "no repository", "it is not in the backup"
	if len(d.Repositories) > 0 {
		owners = strings.Join(d.Repositories, ", ")
	}
	if d.Kept {
		fate = "the backup names the copy that an older one made"
	}
	return fmt.Sprintf("file %s of %s: %s; %s", d.File, owners, d.Why, fate)
}

// StoreDamagedError is [ErrStoreDamaged] with all that is damaged.
type StoreDamagedError struct{ Damage []Damage }

func (e *StoreDamagedError) Error() string {
	lost := slices.DeleteFunc(slices.Clone(e.Damage), func(d Damage) bool { return d.Kept })
	if len(lost) == 0 {
		return fmt.Sprintf("%d files of the store are damaged; the backup is whole, with the copies of older ones",
			len(e.Damage))
	}
	return fmt.Sprintf("%d files of the store are damaged, and %d of them are not in the backup, which is incomplete",
		len(e.Damage), len(lost))
}

// Is reports whether target is [ErrStoreDamaged].
func (e *StoreDamagedError) Is(target error) bool { return target == ErrStoreDamaged }

// Options are the settings of [Write] and [Restore]. The zero value works.
type Options struct {
	// Prune removes the older backups of the same store, and the files that only they name, once
	// the new one is complete. Backups from before stores had an ID stay.
	Prune bool
	// Number is the backup to restore; the newest when 0.
	Number uint64
	// Incomplete restores a backup that lacks files, too.
	Incomplete bool
	// Time is recorded in the backup.
	Time time.Time
	// Progress, if not nil, is called after every file. It is not called concurrently.
	Progress func(Report)
}

// Report is the result of a backup.
type Report struct {
	// Number counts the backups of a folder, from 1.
	Number uint64
	// RowCount is the number of rows that were read of a key-value store that makes no checkpoints.
	RowCount int64
	// FileCount and Bytes are the size of the backup.
	FileCount, Bytes int64
	// TotalBytes is what Bytes will be at the end of a restoration; 0 while a backup is made.
	TotalBytes int64
	// CopiedCount and CopiedBytes count the files written; the others existed already.
	CopiedCount, CopiedBytes int64
	// LostCount files are not in the backup.
	LostCount int64
	// PrunedCount is the number of removed files.
	PrunedCount int64
	// AgedCount backups are from before stores had an id, and were not pruned.
	AgedCount int
}

// Hold keeps files from being removed: *odb.Hold is one.
type Hold interface {
	// Check returns an error when a file may have been removed since the hold began.
	Check(ctx context.Context) error
	Release()
}

// Source is the data to back up.
type Source struct {
	// StoreID is that of the store, 32 hexadecimal digits.
	StoreID string
	// Checkpoint returns the key-value store at one instant during the call. It may call told with the
	// number of rows that it has read, not concurrently.
	Checkpoint func(ctx context.Context, told func(rows int64)) (kv.Checkpoint, error)
	Files      file.Store
	// Remote says that reading Files goes over a network.
	Remote bool
	// Hold keeps the files that are used at an instant from then on.
	Hold func() Hold
	// Owners returns the repositories that use pools, as organization/name, by the tables of a
	// checkpoint.
	Owners func(ctx context.Context, tables kv.Reader, pools []odb.PoolID) (map[odb.PoolID]string, error)
}

// Write adds a backup of source to dest, and returns when it is durable. It may run while the
// stores are used.
//
// Errors: [ErrStranger], when nothing was written; [ErrStoreDamaged], when the backup was completed
// without damaged files, which the report lists; nothing is pruned then. [kv.ErrCorrupt], when a
// table of the key-value store is damaged, and there is no backup. When the stores cannot be
// reached, or the files are no longer held, there is none either.
func Write(ctx context.Context, source Source, dest file.Store, options Options) (_ Report, err error) {
	all, err := List(ctx, dest)
	if err != nil {
		return Report{}, err
	}
	if err := checkStore(all, source.StoreID); err != nil {
		return Report{}, err
	}
	c := &copier{source: source, dest: dest, older: all, progress: options.Progress}
	c.report.Number = newest(all) + 1
	c.hold = source.Hold() // before the checkpoint, so that the files it names stay
	defer c.hold.Release()
	if err := c.hold.Check(ctx); err != nil {
		return Report{}, fmt.Errorf("backup: %w", err)
	}
	checkpoint, err := source.Checkpoint(ctx, c.rows)
	if err != nil {
		return Report{}, fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, checkpoint.Close()) }()
	c.tables = checkpoint
	w, err := beginManifest(ctx, dest, c.report.Number, head{time: options.Time, store: source.StoreID})
	if err != nil {
		return Report{}, fmt.Errorf("backup: begin manifest: %w", err)
	}
	defer func() { err = errors.Join(err, w.out.Abort()) }() // nothing, after the end
	if err := c.files(ctx, w); err != nil {
		return c.report, fmt.Errorf("backup: %w", err)
	}
	if err := c.keys(ctx, checkpoint, w); err != nil {
		return c.report, fmt.Errorf("backup: %w", err)
	}
	if err := c.hold.Check(ctx); err != nil {
		return c.report, fmt.Errorf("backup: %w", err)
	}
	if err := w.end(ctx); err != nil {
		return c.report, fmt.Errorf("backup: end manifest: %w", err)
	}
	if len(c.damage) > 0 {
		return c.report, &StoreDamagedError{c.damage}
	}
	if options.Prune {
		keep := []uint64{c.report.Number}
		for i := range all {
			if all[i].Damage == nil && all[i].Store == "" {
				keep = append(keep, all[i].Number)
				c.report.AgedCount++
			}
		}
		if c.report.PrunedCount, err = prune(ctx, dest, keep); err != nil {
			return c.report, fmt.Errorf("prune backups: %w", err)
		}
	}
	return c.report, nil
}

// newest returns the number of the newest backup, 0 when there is none.
func newest(all []Summary) uint64 {
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].Number
}

// checkStore returns a [StrangerError] if a backup is of another store. Backups without a store ID
// match any store.
func checkStore(all []Summary, store string) error {
	for i := range all {
		if other := all[i].Store; other != "" && other != store {
			return &StrangerError{Folder: other, Store: store}
		}
	}
	return nil
}
