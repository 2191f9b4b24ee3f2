package refs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/kv"
)

// trimCountMax and trimBytesMax bound the rows and the keys of a batch that trims a journal, but
// for a single transaction, whose rows fitted one batch when they were written.
const (
	trimCountMax = 4096
	trimBytesMax = 1 << 20
)

// TrimJournal removes the transactions that are older than before, from the oldest on, and returns
// the oldest sequence that remains. The newest transaction may go as well; the head stays. The
// former states of refs that these transactions have left go with them.
//
// Errors: [ErrRepositoryNotFound].
func (s *Store) TrimJournal(ctx context.Context, repo RepoID, before time.Time) (uint64, error) {
	for range triesMax {
		keep, err := s.trimJournal(ctx, repo, before)
		if !errors.Is(err, kv.ErrConflict) { // with another process that trims
			return keep, err
		}
	}
	return 0, fmt.Errorf("trim the journal of %s: %w", repo, ErrBusy)
}

func (s *Store) trimJournal(ctx context.Context, repo RepoID, before time.Time) (uint64, error) {
	r, floorRow, err := s.reach(ctx, repo)
	if err != nil {
		return 0, err
	}
	t := &trim{keys: s.kv, repo: repo, floorRow: floorRow, floor: floorRow, batch: kv.NewBatch()}
	if r.floor.Before(before) {
		t.floor = floor(before).encode()
	}
	keep := r.head.sequence + 1
	var current Entry
	for pair, err := range s.kv.Scan(ctx, kv.ScanOptions{
		Start: tableKey(journalTable, repo, 0), End: journalKey(repo, keep, 0),
	}) {
		if err != nil {
			return 0, fmt.Errorf("read journal: %w", err)
		}
		entry, err := decodeEntry(pair, &current)
		if err != nil {
			return 0, err
		}
		if entry.Index == 0 && !entry.Time.Before(before) {
			keep = entry.Sequence
			break
		}
		if err := t.add(ctx, &entry); err != nil {
			return 0, err
		}
	}
	if r.first.Sequence != 1 && t.last == 0 && floorRow == nil {
		// A release has trimmed it that kept no floor. All that it trimmed is in the past.
		t.floor, t.last = floor(s.options.Now()).encode(), keep-1
	}
	return keep, t.end(ctx)
}

// trim removes transactions from the oldest on, in batches of whole ones: who finds an entry of the
// journal finds all former states behind it, whenever the trim ends. Each batch requires the floor
// of the one before, so that another process that trims cannot put back an older one.
type trim struct {
	keys            kv.Store
	repo            RepoID
	floorRow, floor []byte // as it is, and as it is going to be

	batch   *kv.Batch // former states of the transactions before last
	rows    int       // that go with it, entries included
	last    uint64    // the last transaction that is to go, 0 for none
	pending [][]byte  // keys of its former states
	entries int       // of it
	size    int       // of pending
}

// add adds an entry, behind all of earlier ones.
func (t *trim) add(ctx context.Context, entry *Entry) error {
	if entry.Index == 0 {
		if err := t.settle(ctx); err != nil {
			return err
		}
		t.last = entry.Sequence
	}
	t.entries++
	if entry.prior != nil && entry.before != nil {
		key := formerKey(t.repo, entry.Ref, entry.Sequence, entry.Index)
		t.pending, t.size = append(t.pending, key), t.size+len(key)
	}
	return nil
}

// settle adds the last transaction to the batch, after it has applied what was in there if there is
// no room beside that.
func (t *trim) settle(ctx context.Context) error {
	rows := t.entries + len(t.pending)
	if t.rows > 0 && (t.rows+rows > trimCountMax || t.batch.Size()+t.size > trimBytesMax) {
		if err := t.apply(ctx, t.last); err != nil {
			return err
		}
	}
	for _, key := range t.pending {
		t.batch.Delete(key)
	}
	t.rows += rows
	t.pending, t.entries, t.size = t.pending[:0], 0, 0
	return nil
}

// end applies the rest.
func (t *trim) end(ctx context.Context) error {
	if t.last == 0 {
		return nil
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	return t.apply(ctx, t.last+1)
}

// apply applies the batch, with the entries of the transactions below a sequence.
func (t *trim) apply(ctx context.Context, sequence uint64) error {
	key := floorKey(t.repo)
	if t.floorRow == nil {
		t.batch.RequireAbsent(key)
	} else {
		t.batch.Require(key, t.floorRow)
	}
	t.batch.Put(key, t.floor)
	t.batch.DeleteRange(tableKey(journalTable, t.repo, 0), journalKey(t.repo, sequence, 0))
	if _, err := t.keys.Apply(ctx, t.batch); err != nil {
		return fmt.Errorf("trim journal: %w", err)
	}
	t.batch, t.rows, t.floorRow = kv.NewBatch(), 0, t.floor
	return nil
}
