package refs

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"packhorse/odb/kv"
)

// longJournal is a store with one repository, whose transactions are made up as they are read: one
// each 100 ms, but ten at a time.
type longJournal struct {
	kv.Store
	start time.Time
	last  uint64
	trips int
}

func (j *longJournal) at(sequence uint64) time.Time {
	return j.start.Add(time.Duration(sequence/10) * time.Second)
}

func (j *longJournal) entry(sequence uint64) []byte {
	return encodeEntry(&Entry{Sequence: sequence, mark: 1, prior: &head{}, Time: j.at(sequence)})
}

func (j *longJournal) Read(_ context.Context, set kv.ReadSet) (kv.Rows, error) {
	j.trips++
	if err := set.Check(); err != nil {
		return kv.Rows{}, err
	}
	rows := kv.Rows{Values: make([][]byte, len(set.Keys)), Pages: make([]kv.Page, len(set.Ranges))}
	for i, key := range set.Keys {
		switch key[0] {
		case headTable:
			rows.Values[i] = head{sequence: j.last, token: 1, millis: uint64(j.at(j.last).UnixMilli())}.encode()
		case journalTable:
			sequence, _, err := journalPosition(key)
			if err != nil {
				return kv.Rows{}, err
			}
			rows.Values[i] = j.entry(sequence)
		}
	}
	for i := range set.Ranges {
		rows.Pages[i].Pairs = []kv.Pair{{Key: journalKey(RepoID{1}, 1, 0), Value: j.entry(1)}}
	}
	return rows, nil
}

// A time is found among a million transactions in four trips.
func TestTripsOfATime(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	j := &longJournal{start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s := Open(j, Options{})
	for _, j.last = range []uint64{1, 2, 127, 128, 129, 16_384, 999_999, 1_000_000, 2_000_000} {
		for range 50 {
			sequence := 1 + random.Uint64N(j.last)
			j.trips = 0
			at := j.at(sequence).Add(time.Duration(random.IntN(1000)) * time.Millisecond)
			got, err := s.SequenceAt(t.Context(), RepoID{1}, at)
			if want := min(sequence/10*10+9, j.last); err != nil || got != want || j.trips > 4 {
				t.Fatalf("%d of %d: %d in %d trips, %v", want, j.last, got, j.trips, err)
			}
		}
	}
}
