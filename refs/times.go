package refs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/kv"
)

// floor is the row that says from which time on the journal of a repository is whole: the last
// transaction that was trimmed happened before. A journal that was never trimmed has none.
//
//	millis(8)
type floor time.Time

func (f floor) encode() []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(time.Time(f).UnixMilli()))
}

// decodeFloor returns the time of a floor, the zero time when there is none.
func decodeFloor(row []byte) (time.Time, error) {
	if row == nil {
		return time.Time{}, nil
	}
	d := decoder{rest: row}
	at := time.UnixMilli(int64(d.uint64())).UTC()
	if err := d.end(); err != nil {
		return time.Time{}, fmt.Errorf("read the floor of a journal: %w", err)
	}
	return at, nil
}

// reach says how far back a repository can be read.
type reach struct {
	head  head
	first Entry     // the first one of the journal; its Sequence is 0 when that is empty
	floor time.Time // zero for none
}

// reach reads how far back a repository can be read. Errors: [ErrRepositoryNotFound].
func (s *Store) reach(ctx context.Context, repo RepoID) (r reach, floorRow []byte, err error) {
	start := tableKey(journalTable, repo, 0)
	rows, err := s.kv.Read(ctx, kv.ReadSet{
		Keys:   [][]byte{headKey(repo), floorKey(repo)},
		Ranges: []kv.ScanOptions{{Start: start, End: kv.PrefixEnd(start), Limit: 1}},
	})
	if err != nil {
		return reach{}, nil, fmt.Errorf("read journal: %w", err)
	}
	if rows.Values[0] == nil {
		return reach{}, nil, ErrRepositoryNotFound
	}
	if r.head, err = decodeHead(rows.Values[0]); err != nil {
		return reach{}, nil, err
	}
	if r.floor, err = decodeFloor(rows.Values[1]); err != nil {
		return reach{}, nil, err
	}
	if pairs := rows.Pages[0].Pairs; len(pairs) > 0 {
		var shared Entry
		r.first, err = decodeEntry(pairs[0], &shared)
	}
	return r, rows.Values[1], err
}

// oldest returns the oldest sequence whose refs can be read, and the time from which on it was the
// last one, as far as is known; now where nothing is known.
func (r *reach) oldest(now time.Time) (sequence uint64, at time.Time) {
	switch isKnown := !r.floor.IsZero(); {
	case r.first.Sequence == 0 && isKnown:
		return r.head.sequence, r.floor
	case r.first.Sequence == 0:
		return r.head.sequence, now
	case r.first.Sequence > 1 && isKnown && r.floor.Before(r.first.Time):
		return r.first.Sequence - 1, r.floor // the first entry leads back to it
	default:
		return r.first.Sequence, r.first.Time
	}
}

// before says why nothing is known of the time before the oldest sequence.
func (r *reach) before(oldest uint64, begins time.Time) error {
	if r.first.Sequence == 1 {
		return &BeforeCreationError{Created: begins}
	}
	return &TrimmedError{Oldest: oldest, At: begins}
}

// Oldest returns the oldest sequence whose refs can be read, and the oldest time for which
// [Store.SequenceAt] has an answer.
//
// Errors: [ErrRepositoryNotFound].
func (s *Store) Oldest(ctx context.Context, repo RepoID) (sequence uint64, at time.Time, err error) {
	r, _, err := s.reach(ctx, repo)
	if err != nil {
		return 0, time.Time{}, err
	}
	sequence, at = r.oldest(s.options.Now())
	return sequence, at, nil
}

// probesMax is how many entries a step of SequenceAt reads: three steps then tell two million
// transactions apart. A step holds their rows, mostly of 100 bytes, each of 64 KiB at most.
const probesMax = 127

// SequenceAt returns the sequence of the last transaction that happened at a time or before. It may
// not be durable yet. Times in a journal never go back; in what an older release has written, where
// the clocks of servers differed, the answer is one of those that are possible.
//
// Errors: [ErrRepositoryNotFound]; a [BeforeCreationError]; [ErrTrimmed], when the journal does not
// reach back as far.
func (s *Store) SequenceAt(ctx context.Context, repo RepoID, at time.Time) (uint64, error) {
	for range triesMax {
		r, _, err := s.reach(ctx, repo)
		if err != nil {
			return 0, err
		}
		oldest, begins := r.oldest(s.options.Now())
		switch {
		case at.Before(begins):
			return 0, r.before(oldest, begins)
		case r.first.Sequence == 0 || at.Before(r.first.Time):
			return oldest, nil
		case r.head.millis > 0 && !at.Before(r.head.time()):
			return r.head.sequence, nil
		}
		found, err := s.bisect(ctx, repo, at, r.first.Sequence, r.head.sequence+1)
		if !errors.Is(err, kv.ErrNotFound) {
			return found, err
		}
		// The journal was trimmed meanwhile.
	}
	return 0, fmt.Errorf("find a time in the journal of %s: %w", repo, ErrBusy)
}

// decodeFirst returns the first entry of a transaction.
func decodeFirst(key, value []byte) (Entry, error) {
	var shared Entry
	return decodeEntry(kv.Pair{Key: key, Value: value}, &shared)
}

// bisect returns the last sequence from low on and below high whose transaction happened at a time
// or before; that of low did. Errors: kv.ErrNotFound when one of them is not in the journal.
func (s *Store) bisect(ctx context.Context, repo RepoID, at time.Time, low, high uint64) (uint64, error) {
	for low+1 < high {
		between := high - low - 1
		count := min(between, probesMax)
		keys, sequences := make([][]byte, count), make([]uint64, count)
		for i := range count {
			sequences[i] = low + 1 + i
			if between > count { // as far apart as possible, none of them twice
				sequences[i] = low + (i+1)*(between/(count+1)) + min(i+1, between%(count+1))
			}
			keys[i] = journalKey(repo, sequences[i], 0)
		}
		values, err := readKeys(ctx, s.kv, keys)
		if err != nil {
			return 0, fmt.Errorf("read journal: %w", err)
		}
		for i, value := range values {
			if value == nil {
				return 0, fmt.Errorf("read journal entry %d: %w", sequences[i], kv.ErrNotFound)
			}
			first, err := decodeFirst(keys[i], value)
			if err != nil {
				return 0, err
			}
			if first.Time.After(at) {
				high = sequences[i]
				break
			}
			low = sequences[i]
		}
	}
	return low, nil
}
