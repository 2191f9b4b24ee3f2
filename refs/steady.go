package refs

import (
	"context"
	"errors"
	"iter"
	"slices"

	"packhorse/odb/kv"
)

// errMoved says that a repository has changed between two snapshots.
var errMoved = errors.New("refs: the repository has changed")

// steady reads the rows of a repository as of one instant for longer than a snapshot lives: when
// one has expired, and the rows have not changed since, it goes on with a new one. It belongs to
// one goroutine. It implements [kv.Reader]; reads fail with errMoved when the rows have changed.
type steady struct {
	store kv.Store
	// signs are the keys of rows of which at least one changes with any row that is read, the head
	// first, and was is their values.
	signs [][]byte
	was   [][]byte
	rows  kv.Snapshot
}

// openSteady begins to read a repository. The caller closes the result.
func openSteady(ctx context.Context, store kv.Store, repo RepoID) (_ *steady, err error) {
	s := &steady{store: store, signs: [][]byte{headKey(repo), floorKey(repo), historyKey(repo)}}
	if s.rows, err = store.Snapshot(ctx); err != nil {
		return nil, err
	}
	if s.was, err = readKeys(ctx, s.rows, s.signs); err != nil {
		return nil, errors.Join(err, s.rows.Close())
	}
	return s, nil
}

// head returns the head of the repository. Errors: [ErrRepositoryNotFound], [ErrCorrupt].
func (s *steady) head() (head, error) {
	row := s.was[0]
	if row == nil {
		return head{}, ErrRepositoryNotFound
	}
	return decodeHead(row)
}

// Close releases the snapshot.
func (s *steady) Close() error { return s.rows.Close() }

// read calls do, and again with a new snapshot if that has expired.
func (s *steady) read(ctx context.Context, do func(rows kv.Reader) error) error {
	for {
		err := do(s.rows)
		if !errors.Is(err, kv.ErrSnapshotExpired) {
			return err
		}
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
}

func (s *steady) renew(ctx context.Context) error {
	if err := s.rows.Close(); err != nil {
		return err
	}
	rows, err := s.store.Snapshot(ctx)
	if err != nil {
		return err
	}
	s.rows = rows
	is, err := readKeys(ctx, rows, s.signs)
	if err == nil && !slices.EqualFunc(is, s.was, slices.Equal) {
		err = errMoved
	}
	return err
}

// Get implements [kv.Reader].
func (s *steady) Get(ctx context.Context, key []byte) (value []byte, err error) {
	err = s.read(ctx, func(rows kv.Reader) error {
		value, err = rows.Get(ctx, key)
		return err
	})
	return value, err
}

// Read implements [kv.Reader].
func (s *steady) Read(ctx context.Context, set kv.ReadSet) (found kv.Rows, err error) {
	err = s.read(ctx, func(rows kv.Reader) error {
		found, err = rows.Read(ctx, set)
		return err
	})
	return found, err
}

// errStopped says that the caller of a scan wants no more.
var errStopped = errors.New("refs: stopped")

// Scan implements [kv.Reader], for walks forward without a limit.
func (s *steady) Scan(ctx context.Context, o kv.ScanOptions) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		var last []byte
		err := s.read(ctx, func(rows kv.Reader) error {
			if last != nil {
				o.Start = append(slices.Clip(last), 0)
			}
			for pair, err := range rows.Scan(ctx, o) {
				if err != nil {
					return err
				}
				last = append(last[:0], pair.Key...)
				if !yield(pair, nil) {
					return errStopped
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(kv.Pair{}, err)
		}
	}
}
