// Package removal removes what deleted repositories have left in the key-value store.
//
// Start at [Sweeper]. The refs and the journal of a repository may be millions of rows, and their
// removal in one batch would take a store minutes that removes row by row. So the batch that
// deletes a repository removes its record, its head and what else is found by its id, and adds a
// row that says that the rest is to be swept. Nobody finds the rest from then on, and nobody adds
// to it (docs/invariants.md 55). A sweep removes it a few thousand rows at a time, and its own row
// with the last of them. It may end at any time, and be made by several servers at once.
package removal

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// table is the first byte of every key: repository id -> nothing. Its rest is to be swept.
const table = 'z'

// rowsMax bounds the rows that one batch removes.
const rowsMax = 4 * kv.PageCountMax

func keyOf(id refs.RepoID) []byte { return append([]byte{table}, id[:]...) }

// Add adds to the batch that deletes a repository that the rest is to be swept.
func Add(b *kv.Batch, id refs.RepoID) { b.Put(keyOf(id), nil) }

// Sweeper sweeps a store. Its methods may be called concurrently, on several servers.
type Sweeper struct {
	Keys kv.Store
	// Leftovers selects what a deletion leaves of a repository.
	Leftovers func(id refs.RepoID) []kv.ScanOptions
	// RecordKey is the key of a row that every repository has and no deleted one.
	RecordKey func(id refs.RepoID) []byte
}

// Sweep removes what all deleted repositories have left. Errors: kv.ErrCorrupt.
func (s *Sweeper) Sweep(ctx context.Context) error {
	for id, err := range s.pending(ctx) {
		if err == nil {
			err = s.sweep(ctx, id)
		}
		if isDone(err, id) { // another server was quicker
			err = nil
		}
		if err != nil {
			return fmt.Errorf("sweep deleted repository %s: %w", id, err)
		}
	}
	return nil
}

// Check returns an error for a repository that is to be swept and exists. Errors: kv.ErrCorrupt.
func (s *Sweeper) Check(ctx context.Context) error {
	for id, err := range s.pending(ctx) {
		if err != nil {
			return err
		}
		switch _, err := s.Keys.Get(ctx, s.RecordKey(id)); {
		case err == nil:
			return fmt.Errorf("%w: repository %s exists and is to be swept", kv.ErrCorrupt, id)
		case !errors.Is(err, kv.ErrNotFound):
			return err
		}
	}
	return nil
}

// pending walks the repositories whose rest is to be swept.
func (s *Sweeper) pending(ctx context.Context) iter.Seq2[refs.RepoID, error] {
	return func(yield func(refs.RepoID, error) bool) {
		for pair, err := range s.Keys.Scan(ctx, kv.ScanOptions{Start: []byte{table}, End: []byte{table + 1}}) {
			var id refs.RepoID
			if err == nil && len(pair.Key) != 1+len(id) {
				err = fmt.Errorf("%w: key of %d bytes among those to be swept", kv.ErrCorrupt, len(pair.Key))
			}
			if err == nil {
				id = refs.RepoID(pair.Key[1:])
			}
			if !yield(id, err) || err != nil {
				return
			}
		}
	}
}

// sweep removes what one repository has left.
func (s *Sweeper) sweep(ctx context.Context, id refs.RepoID) error {
	left := s.Leftovers(id)
	for {
		rows, err := s.Keys.Read(ctx, kv.ReadSet{Ranges: left})
		if err != nil {
			return err
		}
		last := s.batch(id)
		more := false
		for i, page := range rows.Pages {
			if more = more || page.More; page.More {
				if err := s.drain(ctx, id, left[i]); err != nil {
					return err
				}
			}
			if count := len(page.Pairs); count > 0 {
				last.DeleteRange(left[i].Start, append(page.Pairs[count-1].Key, 0))
			}
		}
		if more {
			continue
		}
		last.Delete(keyOf(id))
		_, err = s.Keys.Apply(ctx, last)
		return err
	}
}

// drain removes a range, rowsMax rows at a time.
func (s *Sweeper) drain(ctx context.Context, id refs.RepoID, left kv.ScanOptions) error {
	left.Limit = rowsMax
	for {
		count := 0
		var end []byte
		for pair, err := range s.Keys.Scan(ctx, left) {
			if err != nil {
				return err
			}
			count++
			end = append(append(end[:0], pair.Key...), 0)
		}
		if count == 0 {
			return nil
		}
		b := s.batch(id)
		b.DeleteRange(left.Start, end)
		if _, err := s.Keys.Apply(ctx, b); err != nil {
			return err
		}
		left.Start = end
	}
}

// batch returns a batch that removes nothing of a repository that exists, and nothing when all is
// done.
func (s *Sweeper) batch(id refs.RepoID) *kv.Batch {
	b := kv.NewBatch()
	b.RequireAbsent(s.RecordKey(id))
	b.Require(keyOf(id), nil)
	return b
}

// isDone reports whether an error says that nothing of a repository is to be swept any more.
func isDone(err error, id refs.RepoID) bool {
	conflict, ok := errors.AsType[*kv.ConflictError](err)
	return ok && string(conflict.Key) == string(keyOf(id))
}
