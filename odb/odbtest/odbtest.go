// Package odbtest opens object stores in memory for the tests of packages that read and write
// objects.
//
// The stores are the real ones on a file system in memory, so nothing is mocked, and nothing stays
// on disk. Start at [Open]; [Clone] stores the objects of a git repository.
package odbtest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/fuzz/oracle"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/ingest"
	"packhorse/odb/kv"
	"packhorse/odb/packgen"
	"packhorse/odb/repack"
)

// OpenStores opens the stores of keys and of files in fs. The returned function closes them.
func OpenStores(tb testing.TB, fs vfs.FS) (keys kv.Store, files file.Store, shut func()) {
	tb.Helper()
	keys, err := kv.OpenPebble("keys",
		kv.PebbleOptions{FS: fs, MemoryBytes: 16 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	files, err = file.OpenDir("files", file.DirOptions{FS: fs})
	if err != nil {
		tb.Fatal(err)
	}
	return keys, files, func() {
		tb.Helper()
		if err := errors.Join(files.Close(), keys.Close()); err != nil {
			tb.Error(err)
		}
	}
}

// Store is an object store and the keys that its batches go to.
type Store struct {
	*odb.Store
	keys kv.Store
}

// OpenOn is [odb.Open] with the parts that the packages above give a store: walks, and auxiliary
// files of large segments, which are built at once when [odb.Options] say which size is large.
func OpenOn(ctx context.Context, keys kv.Store, files file.Store, options odb.Options) (*odb.Store, error) {
	options.Reach = packgen.Reachability{}
	var store *odb.Store
	if options.AuxiliaryCount > 0 {
		options.GrewLarge = func(pool odb.PoolID) {
			if err := repack.BuildAuxiliary(ctx, store, pool, 0); err != nil && !errors.Is(err, odb.ErrNoPool) {
				panic(err) // the caller has no way to return it
			}
		}
	}
	var err error
	store, err = odb.Open(ctx, keys, files, options)
	return store, err
}

// Open opens an empty object store and closes it when the test ends.
func Open(tb testing.TB, options odb.Options) *Store {
	tb.Helper()
	keys, files, shut := OpenStores(tb, vfs.NewMem())
	tb.Cleanup(shut)
	store, err := OpenOn(context.Background(), keys, files, options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return &Store{store, keys}
}

// NewPool makes an empty pool.
func (s *Store) NewPool(tb testing.TB) odb.PoolID {
	tb.Helper()
	batch := kv.NewBatch()
	pool := s.CreatePool(batch)
	s.apply(tb, batch)
	return pool
}

func (s *Store) apply(tb testing.TB, batch *kv.Batch) {
	tb.Helper()
	if _, err := s.keys.Apply(context.Background(), batch); err != nil {
		tb.Fatal(err)
	}
}

// Push adds the objects of a pack to a pool, and returns the reason if the pack was refused.
func (s *Store) Push(tb testing.TB, pool odb.PoolID, packed []byte) error {
	tb.Helper()
	ctx := context.Background()
	view := s.OpenView(tb, pool)
	defer view.Close()
	in, err := ingest.Read(ctx, view, bytes.NewReader(packed), ingest.Options{})
	if err != nil {
		return err
	}
	defer in.Close()
	q, _, err := in.Resolve(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err := q.Close(); err != nil {
			tb.Error(err)
		}
	}()
	batch := kv.NewBatch()
	if err := q.Stage(ctx, batch); err != nil {
		tb.Fatal(err)
	}
	s.apply(tb, batch)
	q.Settled(ctx)
	return nil
}

// OpenView opens a pool for reading. The caller closes the view.
func (s *Store) OpenView(tb testing.TB, pool odb.PoolID) *odb.View {
	tb.Helper()
	view, err := s.View(context.Background(), pool)
	if err != nil {
		tb.Fatal(err)
	}
	return view
}

// Clone stores all objects that the branches of a repository reach in a new pool, and returns a
// view that stays open until the test ends.
func Clone(tb testing.TB, git *oracle.Repository) *odb.View {
	tb.Helper()
	branches := git.Git("for-each-ref", "--format=%(objectname)", "refs/heads")
	packed := git.Input([]byte(branches+"\n"), "pack-objects", "--quiet", "--revs", "--stdout", "--delta-base-offset")
	s := Open(tb, odb.Options{})
	pool := s.NewPool(tb)
	if err := s.Push(tb, pool, packed); err != nil {
		tb.Fatal(err)
	}
	view := s.OpenView(tb, pool)
	tb.Cleanup(func() {
		if err := view.Close(); err != nil {
			tb.Error(err)
		}
	})
	return view
}
