package refs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/kv"
)

// SnapshotAt returns the refs of a repository as they were behind the transaction of a sequence.
// Stored names that are going to be looked up may be named, as for [Store.Snapshot].
//
// Errors: [ErrRepositoryNotFound]; [ErrTrimmed], when the journal does not reach back as far; a
// [BeforeCreationError] for sequence 0; a [FutureError] for a sequence that is to come; [ErrBusy],
// when the store has lost transactions meanwhile.
func (s *Store) SnapshotAt(ctx context.Context, repo RepoID, sequence uint64, names ...string) (*Snapshot, error) {
	now, err := s.Snapshot(ctx, repo, names...)
	if err != nil || now.head.sequence == sequence {
		return now, err
	}
	if err := now.Close(); err != nil {
		return nil, err
	}
	if sequence > now.head.sequence {
		return nil, &FutureError{Sequence: sequence, Last: now.head.sequence}
	}
	if sequence == 0 {
		oldest, at, err := s.Oldest(ctx, repo)
		if err == nil && oldest > 1 {
			return nil, &TrimmedError{Oldest: oldest}
		}
		if err == nil {
			err = &BeforeCreationError{Created: at}
		}
		return nil, err
	}
	head, err := undone(ctx, s.kv, repo, now.head, sequence)
	if err != nil {
		return nil, err
	}
	return &Snapshot{store: s, repo: repo, head: head}, nil
}

// undone returns a head as it was at an earlier sequence, by the journal in between. Errors:
// [ErrTrimmed].
func undone(ctx context.Context, reader kv.Reader, repo RepoID, now head, sequence uint64) (head, error) {
	then := now
	then.sequence, then.stamp = sequence, 0
	for entry, err := range journal(ctx, reader, repo, sequence, now.sequence) {
		if err != nil {
			return head{}, err
		}
		if entry.Index == 0 {
			then.token ^= entry.mark
		}
		if entry.before != nil {
			then.count++
			then.nameBytes += uint64(len(entry.Ref))
		}
		if entry.after != nil {
			then.count--
			then.nameBytes -= uint64(len(entry.Ref))
		}
	}
	return then, nil
}

// Oldest returns the oldest sequence whose refs can be read, and when its transaction happened.
//
// Errors: [ErrRepositoryNotFound].
func (s *Store) Oldest(ctx context.Context, repo RepoID) (sequence uint64, at time.Time, err error) {
	head, err := s.head(ctx, repo)
	if err != nil {
		return 0, time.Time{}, err
	}
	first, found, err := s.oldestEntry(ctx, repo)
	if err != nil || found {
		return first.Sequence, first.Time, err
	}
	return head.sequence, s.options.Now(), nil
}

// oldestEntry returns the first entry of the journal.
func (s *Store) oldestEntry(ctx context.Context, repo RepoID) (first Entry, found bool, err error) {
	start := tableKey(journalTable, repo, 0)
	for pair, err := range s.kv.Scan(ctx, kv.ScanOptions{Start: start, End: kv.PrefixEnd(start), Limit: 1}) {
		if err != nil {
			return Entry{}, false, fmt.Errorf("read journal: %w", err)
		}
		var shared Entry
		first, err = decodeEntry(pair, &shared)
		return first, err == nil, err
	}
	return Entry{}, false, nil
}

// SequenceAt returns the sequence of the last transaction that happened at a time or before.
//
// Errors: [ErrRepositoryNotFound]; a [BeforeCreationError]; [ErrTrimmed], when the journal does not
// reach back as far.
func (s *Store) SequenceAt(ctx context.Context, repo RepoID, at time.Time) (uint64, error) {
	head, err := s.head(ctx, repo)
	if err != nil {
		return 0, err
	}
	oldest, begins, err := s.Oldest(ctx, repo)
	if err != nil {
		return 0, err
	}
	if at.Before(begins) {
		if oldest == 1 {
			return 0, &BeforeCreationError{Created: begins}
		}
		return 0, &TrimmedError{Oldest: oldest, At: begins}
	}
	low, high := oldest, head.sequence+1
	for low+1 < high { // low happened at that time or before, high later
		middle := low + (high-low)/2
		first, _, err := firstEntry(ctx, s.kv, repo, middle)
		switch {
		case errors.Is(err, kv.ErrNotFound):
			return 0, &TrimmedError{Oldest: middle + 1}
		case err != nil:
			return 0, err
		case first.Time.After(at):
			high = middle
		default:
			low = middle
		}
	}
	return low, nil
}
