package kv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/kv"
)

// seededRows yields rows in the order of their keys, whose values do not compress.
func seededRows(seed uint64, count, valueBytes int) []kv.Pair {
	random := rand.NewChaCha8([32]byte{byte(seed)})
	rows := make([]kv.Pair, count)
	for i := range rows {
		rows[i] = kv.Pair{Key: binary.BigEndian.AppendUint64([]byte("t"), uint64(i)), Value: make([]byte, valueBytes)}
		_, _ = random.Read(rows[i].Value)
	}
	return rows
}

// copyRows copies rows into a folder of fs.
func copyRows(fs vfs.FS, rows iter.Seq2[kv.Pair, error]) (kv.Checkpoint, error) {
	return kv.CopyRows(context.Background(), rows, "scratch/copy",
		kv.PebbleOptions{FS: fs, Logger: slog.New(slog.DiscardHandler)})
}

// yielding yields rows, and then err if it is not nil.
func yielding(rows []kv.Pair, err error) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
		if err != nil {
			yield(kv.Pair{}, err)
		}
	}
}

// tables returns the contents of the tables.
func tables(t *testing.T, c kv.Checkpoint) (contents []string) {
	t.Helper()
	for _, f := range c.Files() {
		if !strings.HasSuffix(f.Name, ".sst") {
			continue
		}
		in, err := c.Open(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err := errors.Join(err, in.Close(), c.Check(f.Name)); err != nil {
			t.Fatal(err)
		}
		contents = append(contents, string(content))
	}
	return contents
}

// TestCopyRows copies rows, reads the copy, and restores a store from it. When few of many rows
// change, most tables stay the same.
func TestCopyRows(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	for name, rows := range map[string][]kv.Pair{
		"no rows": nil, "one row": seededRows(1, 1, 10), "an empty value": seededRows(1, 1, 0),
		"large rows": seededRows(1, 10, kv.ValueBytesMax),
	} {
		checkCopy(t, fs, name, rows)
	}
	rows := seededRows(2, 4000, 4<<10)
	last := checkCopy(t, fs, "many rows", rows)
	if len(last) < 3 || len(last) > 24 {
		t.Fatalf("%d tables", len(last))
	}
	rows = slices.Delete(rows, 100, 103) // in the first table
	rows = slices.Insert(rows, len(rows)-5, kv.Pair{Key: append(rows[len(rows)-6].Key, 'x')})
	now := checkCopy(t, fs, "few changed", rows)
	same := 0
	for _, table := range now {
		if slices.Contains(last, table) {
			same++
		}
	}
	if same < len(now)-2 { // all but the first and the last
		t.Errorf("of %d tables %d are those of before", len(now), same)
	}
}

// checkCopy copies rows, looks at the copy, and returns the tables.
func checkCopy(t *testing.T, fs vfs.FS, name string, rows []kv.Pair) []string {
	t.Helper()
	c, err := copyRows(fs, yielding(rows, nil))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	contents := tables(t, c)
	restored := vfs.NewMem()
	restoration, err := kv.NewRestoration("keys", kv.PebbleOptions{FS: restored, Logger: slog.New(slog.DiscardHandler)})
	for _, f := range c.Files() {
		if err == nil {
			var in io.ReadCloser
			in, err = c.Open(f.Name)
			if err == nil {
				err = errors.Join(restoration.Write(f.Name, in), in.Close())
			}
		}
	}
	if err := errors.Join(err, restoration.Finish()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	store, err := kv.OpenPebble("keys", kv.PebbleOptions{FS: restored, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	wantRows(t, name, c, rows)
	wantRows(t, name, store, rows)
	if err := errors.Join(store.Close(), c.Close()); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	wantEmpty(t, fs, name)
	return contents
}

// wantRows wants a reader to have these rows.
func wantRows(t *testing.T, name string, reader kv.Reader, rows []kv.Pair) {
	t.Helper()
	for row, err := range reader.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(rows) == 0 || !bytes.Equal(row.Key, rows[0].Key) || !bytes.Equal(row.Value, rows[0].Value) {
			t.Fatalf("%s: key %x is wrong, %d rows before the end", name, row.Key, len(rows))
		}
		rows = rows[1:]
	}
	if len(rows) > 0 {
		t.Errorf("%s: %d rows are missing", name, len(rows))
	}
}

// wantEmpty looks for what a copy has left.
func wantEmpty(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	if left, err := fs.List("scratch"); err != nil || len(left) > 0 {
		t.Errorf("%s: %q is left, %v", name, left, err)
	}
}

// TestCopyRowsFails ends the rows with an error, has them out of order, and lets the disk fail at
// each write in turn: the error is told, and nothing stays.
func TestCopyRowsFails(t *testing.T) {
	t.Parallel()
	fault := errors.New("injected fault")
	rows := seededRows(3, 3, 1<<10)
	fs := vfs.NewMem()
	if _, err := copyRows(fs, yielding(rows, fault)); !errors.Is(err, fault) {
		t.Errorf("rows that end with an error: %v", err)
	}
	wantEmpty(t, fs, "an error")
	if c, err := copyRows(fs, yielding([]kv.Pair{rows[1], rows[0]}, nil)); err == nil {
		t.Errorf("rows out of order are copied: %v", c.Close())
	}
	wantEmpty(t, fs, "out of order")
	for at := int64(1); ; at++ {
		fs := vfs.NewMem()
		var left atomic.Int64
		left.Store(at)
		faulty := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && left.Add(-1) == 0 {
				return fault
			}
			return nil
		}))
		c, err := copyRows(faulty, yielding(rows, nil))
		name := fmt.Sprint("fault ", at)
		if err == nil {
			wantRows(t, name, c, rows)
			if err := c.Close(); err != nil && left.Load() > 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
		if left.Load() > 0 { // there are not as many
			if err != nil || at < 10 {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
	}
}
