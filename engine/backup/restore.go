package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"packhorse/odb/file"
	"packhorse/odb/kv"
	"packhorse/odb/rescue"
)

// Target is where a backup is restored. Both stores are empty.
type Target struct {
	Keys  *kv.Restoration
	Files file.Store
}

// Restore restores stores from a backup and verifies the checksum of every file. The stores are
// durable when it returns without an error, and unusable after an error.
//
// Errors: [ErrNone], [ErrDamaged], [ErrIncomplete] unless the options accept that, [file.ErrExists]
// when Files is not empty.
func Restore(ctx context.Context, from file.Store, target Target, options Options) (Report, error) {
	report, err := each(ctx, from, options, func(e entry) error {
		if e.kind == kindKeys {
			return restoreKeys(ctx, from, target.Keys, e)
		}
		return restoreFile(ctx, from, target.Files, e)
	})
	if err != nil {
		return report, fmt.Errorf("restore: %w", err)
	}
	if err := target.Keys.Finish(); err != nil {
		return report, fmt.Errorf("restore: %w", err)
	}
	return report, nil
}

// each calls do with every file of a backup, whose manifest has been verified.
func each(ctx context.Context, from file.Store, options Options, do func(entry) error) (Report, error) {
	report := Report{Number: options.Number}
	if report.Number == 0 {
		found, err := numbers(ctx, from)
		if err != nil {
			return report, err
		}
		if len(found) == 0 {
			return report, ErrNone
		}
		report.Number = found[len(found)-1]
	}
	is, err := summarize(ctx, from, report.Number)
	if errors.Is(err, file.ErrNotFound) {
		err = fmt.Errorf("%w: number %d", ErrNone, report.Number)
	}
	if err = cmp.Or(err, is.Damage); err != nil {
		return report, err
	}
	report.TotalBytes = is.Bytes
	if report.LostCount = is.LostCount; is.LostCount > 0 && !options.Incomplete {
		return report, fmt.Errorf("%w: backup %d lacks %d files that were damaged in the store", ErrIncomplete, is.Number,
			is.LostCount)
	}
	for e, err := range entries(ctx, from, report.Number, new(head)) {
		if err == nil && e.kind == kindLost {
			continue
		}
		if err == nil {
			err = do(e)
		}
		if err != nil {
			return report, err
		}
		report.FileCount++
		report.Bytes += e.size
		report.CopiedCount, report.CopiedBytes = report.FileCount, report.Bytes
		if options.Progress != nil {
			options.Progress(report)
		}
	}
	return report, nil
}

func restoreFile(ctx context.Context, from, to file.Store, e entry) (err error) {
	out, err := to.Create(ctx, e.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Abort()) }() // nothing, after Seal
	if err := checkStored(ctx, from, e, out); err != nil {
		return err
	}
	if err := out.Seal(ctx); err != nil {
		return err
	}
	return file.Settle(ctx, to, e.name)
}

// restoreKeys writes a file of the key-value store. One that is damaged ends the restoration before
// there is a store.
func restoreKeys(ctx context.Context, from file.Store, to *kv.Restoration, e entry) error {
	content, in := io.Pipe()
	checked := rescue.Beside(func() error {
		err := rescue.Do(func() error { return checkStored(ctx, from, e, in) })
		return errors.Join(err, in.CloseWithError(err)) // Write gets this error
	})
	err := to.Write(e.name, content)
	closed := content.CloseWithError(err) // checkStored gets this error
	if cause := <-checked; err == nil {
		err = cause
	}
	return errors.Join(err, closed)
}
