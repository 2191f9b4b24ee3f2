package refs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/kv"
)

// HistoryFloor is where the readable history of a repository begins: at Since its refs were at
// Sequence. What refs reached before may have been removed. The zero HistoryFloor is that of a
// repository all of whose journal can be read.
type HistoryFloor struct {
	Sequence uint64
	Since    time.Time
}

// Below reports whether a state lies before the readable history.
func (f HistoryFloor) Below(sequence uint64) bool { return sequence < f.Sequence }

func historyKey(repo RepoID) []byte { return tableKey(historyTable, repo, 0) }

// encode is the row: sequence(8) since(8, Unix milliseconds).
func (f HistoryFloor) encode() []byte {
	row := binary.BigEndian.AppendUint64(make([]byte, 0, 16), f.Sequence)
	return binary.BigEndian.AppendUint64(row, uint64(f.Since.UnixMilli()))
}

func decodeHistoryFloor(row []byte) (HistoryFloor, error) {
	if row == nil {
		return HistoryFloor{}, nil
	}
	if len(row) != 16 {
		return HistoryFloor{}, corrupt("floor of a history of %d bytes", len(row))
	}
	since := time.UnixMilli(int64(binary.BigEndian.Uint64(row[8:]))).UTC()
	return HistoryFloor{Sequence: binary.BigEndian.Uint64(row), Since: since}, nil
}

// Window is the part of a repository's history that can be read.
type Window struct {
	HistoryFloor
	// Head is the sequence of the last transaction, which may not be durable yet.
	Head uint64
}

// Window returns the readable history of a repository, as of one instant. Errors:
// [ErrRepositoryNotFound].
func (s *Store) Window(ctx context.Context, repo RepoID) (Window, error) {
	window, _, err := s.window(ctx, repo)
	return window, err
}

// Floor returns the floor of a repository's history, the zero one also for a repository that does
// not exist.
func (s *Store) Floor(ctx context.Context, repo RepoID) (HistoryFloor, error) {
	row, err := s.kv.Get(ctx, historyKey(repo))
	if errors.Is(err, kv.ErrNotFound) {
		return HistoryFloor{}, nil
	}
	if err != nil {
		return HistoryFloor{}, fmt.Errorf("read floor of %s: %w", repo, err)
	}
	return decodeHistoryFloor(row)
}

// window also returns the rows of the head and of the floor.
func (s *Store) window(ctx context.Context, repo RepoID) (w Window, rows [][]byte, err error) {
	found, err := s.kv.Read(ctx, kv.ReadSet{Keys: [][]byte{headKey(repo), historyKey(repo)}})
	if err != nil {
		return w, nil, fmt.Errorf("read window of %s: %w", repo, err)
	}
	rows = found.Values
	if rows[0] == nil {
		return w, nil, ErrRepositoryNotFound
	}
	now, err := decodeHead(rows[0])
	if err != nil {
		return w, nil, err
	}
	w.Head = now.sequence
	w.HistoryFloor, err = decodeHistoryFloor(rows[1])
	return w, rows, err
}

// RaiseFloor ends the readable history of a repository before a time, and returns its floor, which
// is never lowered. Call it before what is older is trimmed from the journal or from the objects:
// who reads the floor after the objects then knows whether they were whole.
//
// It takes the turn of the repository, so that only another server can be ahead of it. Errors:
// [ErrRepositoryNotFound]; [ErrBusy]; that of ctx.
func (s *Store) RaiseFloor(ctx context.Context, repo RepoID, before time.Time) (HistoryFloor, error) {
	pass, err := s.takeTurn(ctx, repo, &Change{})
	if err != nil {
		return HistoryFloor{}, fmt.Errorf("raise floor of %s: %w", repo, err)
	}
	defer pass()
	for range triesMax {
		w, rows, err := s.window(ctx, repo)
		if err != nil {
			return HistoryFloor{}, err
		}
		if !before.After(w.Since) {
			return w.HistoryFloor, nil
		}
		raised, err := s.floorAt(ctx, repo, &w, before)
		if err != nil || raised.Since.Equal(w.Since) {
			return raised, err
		}
		batch := kv.NewBatch()
		batch.Require(headKey(repo), rows[0])
		if rows[1] == nil {
			batch.RequireAbsent(historyKey(repo))
		} else {
			batch.Require(historyKey(repo), rows[1])
		}
		batch.Put(historyKey(repo), raised.encode())
		commit, err := s.kv.Apply(ctx, batch)
		if errors.Is(err, kv.ErrConflict) {
			continue
		}
		if err == nil {
			err = commit.Wait(ctx)
		}
		if err != nil {
			return HistoryFloor{}, fmt.Errorf("raise floor of %s: %w", repo, err)
		}
		return raised, nil
	}
	return HistoryFloor{}, fmt.Errorf("raise floor of %s: %w", repo, ErrBusy)
}

// floorAt returns the floor at a time that lies behind the present one.
func (s *Store) floorAt(ctx context.Context, repo RepoID, w *Window, at time.Time) (HistoryFloor, error) {
	sequence, err := s.SequenceAt(ctx, repo, at)
	trimmed, ok := errors.AsType[*TrimmedError](err)
	switch {
	case errors.Is(err, ErrBeforeCreation):
		return w.HistoryFloor, nil
	case ok: // by a release that kept no floors
		return HistoryFloor{max(trimmed.Oldest, w.Sequence), trimmed.At}, nil
	}
	return HistoryFloor{max(sequence, w.Sequence), at}, err
}
