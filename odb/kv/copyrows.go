package kv

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"log/slog"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// CopyRows makes a checkpoint of rows, such as those of an [Export], in dir, which does not exist
// and which [Checkpoint.Close] removes. The rows are in the order of their keys, and none is read
// after CopyRows has returned. It uses only FS and Logger of the options. Memory does not grow with
// the rows.
//
// Where a table ends is decided by the row at its end alone: equal runs of rows become equal
// tables, whatever has changed before and behind them.
func CopyRows(
	ctx context.Context, rows iter.Seq2[Pair, error], dir string, options PebbleOptions,
) (_ Checkpoint, err error) {
	c := &checkpoint{fs: options.FS, dir: dir}
	if c.fs == nil {
		c.fs = vfs.Default
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	t := &tableWriter{fs: c.fs, dir: c.fs.PathJoin(dir, "rows")}
	if err := c.fs.MkdirAll(t.dir, 0o700); err != nil {
		return nil, fmt.Errorf("copy rows: %w", err)
	}
	if err := t.addAll(ctx, rows); err != nil {
		return nil, fmt.Errorf("copy rows: %w", translate(err))
	}
	if err := c.ingest(ctx, t, options.Logger); err != nil {
		return nil, fmt.Errorf("copy rows: %w", translate(err))
	}
	if err := c.open(options.Logger); err != nil {
		return nil, err
	}
	return c, nil
}

// ingest makes a store of tables.
func (c *checkpoint) ingest(ctx context.Context, t *tableWriter, logger *slog.Logger) error {
	p := newCopied(logger)
	err := p.recovered(func() error {
		db, err := pebble.Open(c.dir, p.copyOptions(c.fs, false))
		if err != nil {
			return err
		}
		if len(t.paths) > 0 {
			err = db.Ingest(ctx, t.paths)
		}
		return errors.Join(err, db.Close())
	})
	return errors.Join(err, c.fs.RemoveAll(t.dir), c.removeLogs())
}

// Sizes of a table before its compression: it has tableBytesMin at least, tableBytesMax at most,
// and beyond the former ends after tableBytesMean more on the average.
const (
	tableBytesMin  = 1 << 20
	tableBytesMean = 4 << 20
	tableBytesMax  = 32 << 20
)

// tableWriter writes rows into tables.
type tableWriter struct {
	fs    vfs.FS
	dir   string
	paths []string        // of the tables so far
	table *sstable.Writer // nil between two of them
	size  int64           // of the rows of table
}

// addAll writes all rows.
func (t *tableWriter) addAll(ctx context.Context, rows iter.Seq2[Pair, error]) (err error) {
	defer func() { err = errors.Join(err, t.end()) }()
	for row, err := range rows {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if err := t.add(row); err != nil {
			return err
		}
	}
	return nil
}

func (t *tableWriter) add(row Pair) error {
	if t.table == nil {
		if err := t.begin(); err != nil {
			return err
		}
	}
	if err := t.table.Set(row.Key, row.Value); err != nil {
		return err
	}
	size := int64(len(row.Key) + len(row.Value))
	t.size += size
	if t.size < tableBytesMin || t.size < tableBytesMax && !isBorder(row.Key, size) {
		return nil
	}
	return t.end()
}

// isBorder reports whether a table may end behind a row of that size.
func isBorder(key []byte, size int64) bool {
	return int64(crc32.ChecksumIEEE(key)) < size*math.MaxUint32/tableBytesMean
}

// begin begins a table.
func (t *tableWriter) begin() error {
	path := t.fs.PathJoin(t.dir, fmt.Sprintf("%06d", len(t.paths)))
	f, err := t.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	t.table = sstable.NewWriter(objstorageprovider.NewFileWritable(f), tableOptions())
	t.paths, t.size = append(t.paths, path), 0
	return nil
}

// end completes the table, if there is one.
func (t *tableWriter) end() error {
	if t.table == nil {
		return nil
	}
	table := t.table
	t.table = nil
	return table.Close()
}

// tableOptions are those of the tables of a store on their lowest level. Their compression is a
// fixed one: what Pebble chooses by itself depends on more than the rows.
func tableOptions() sstable.WriterOptions {
	const lowest = 6
	o := pebbleOptions(PebbleOptions{}, new(Pebble))
	o.EnsureDefaults()
	options := o.MakeWriterOptions(lowest, pebble.FormatWALSyncChunks.MaxTableFormat())
	options.Compression = sstable.SnappyCompression
	return options
}
