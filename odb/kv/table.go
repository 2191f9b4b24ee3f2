package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// isTable reports whether a file of that name is a table.
func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }

// checkTable reads every block of a table and verifies its checksum. Errors: [ErrCorrupt].
func checkTable(fileSystem vfs.FS, path string) (err error) {
	f, err := fileSystem.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	if err := checkFooter(f); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	defer func() {
		if reason := recover(); reason != nil { // Pebble's self-checks end in a panic
			err = fmt.Errorf("%w: %s: %v", ErrCorrupt, path, reason)
		}
	}()
	table, err := sstable.NewReader(context.Background(), readable, sstable.ReaderOptions{})
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, translate(err)), readable.Close())
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	if err := table.ValidateBlockChecksums(); err != nil {
		return fmt.Errorf("%s: %w", path, translate(err))
	}
	return nil
}
