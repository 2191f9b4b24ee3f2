package refs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"packhorse/odb/kv"
)

// Kinds of keys in the table of the feeds.
//
//	e p organization NUL generation(4) number(8)   a transaction, see feedRow
//	e g generation(4)                              the nonce of a generation(8)
//	e f organization                               the place of the last row that was trimmed(12)
const (
	feedRows        = 'p'
	feedGenerations = 'g'
	feedFloors      = 'f'
)

// feedPrefix is what the keys of an organization's rows begin with.
func feedPrefix(org string) []byte {
	key := make([]byte, 0, 2+len(org)+1+feedPlaceBytes)
	return append(append(append(key, feedTable, feedRows), org...), 0)
}

func feedKey(org string, place feedPlace) []byte { return place.append(feedPrefix(org)) }

func feedGenerationKey(generation uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{feedTable, feedGenerations}, generation)
}

func feedFloorKey(org string) []byte { return append([]byte{feedTable, feedFloors}, org...) }

// splitFeedKey decodes a feedKey.
func splitFeedKey(key []byte) (org string, place feedPlace, err error) {
	end := len(key) - feedPlaceBytes - 1
	if end < 2 || bytes.IndexByte(key[2:], 0) != end-2 {
		return "", feedPlace{}, corrupt("feed key %q", key)
	}
	return string(key[2:end]), readFeedPlace(key[end+1:]), nil
}

// Kinds of rows.
const (
	feedChanged = iota + 1 // a transaction that changed refs
	feedCreated            // the creation of a repository, with the refs that it began with
	feedDeleted            // its deletion
)

// feedRow is the row of a transaction. What it changed is in the journal of the repository. A
// deletion takes the journal along, so its row has what there is to tell.
//
//	version(1) kind(1) repo(16) sequence(uvarint) events(uvarint) time(varint, Unix milliseconds) [actor cause name]
type feedRow struct {
	kind     byte
	repo     RepoID
	sequence uint64
	count    uint32 // of events: changes of refs, and one for a creation or a deletion
	millis   int64

	actor, cause, name string // of a deletion
}

func (r *feedRow) encode() []byte {
	row := make([]byte, 0, 48+len(r.actor)+len(r.cause)+len(r.name))
	row = append(append(row, rowVersion, r.kind), r.repo[:]...)
	row = binary.AppendUvarint(row, r.sequence)
	row = binary.AppendUvarint(row, uint64(r.count))
	row = binary.AppendVarint(row, r.millis)
	if r.kind == feedDeleted {
		row = appendString(appendString(appendString(row, r.actor), r.cause), r.name)
	}
	return row
}

func decodeFeedRow(value []byte) (feedRow, error) {
	d := decoder{rest: value}
	d.version()
	row := feedRow{kind: d.byte()}
	copy(row.repo[:], d.take(len(row.repo)))
	row.sequence = d.uvarint()
	count := d.uvarint()
	row.count, row.millis = uint32(count), d.varint()
	if row.kind == feedDeleted {
		row.actor, row.cause, row.name = d.string(), d.string(), d.string()
	}
	if row.kind < feedChanged || row.kind > feedDeleted || row.sequence == 0 || count == 0 || count > math.MaxUint32 {
		d.fail()
	}
	if err := d.end(); err != nil {
		return feedRow{}, fmt.Errorf("read feed: %w", err)
	}
	return row, nil
}

// FsckFeeds verifies that every row of the feeds can be read. Errors: [ErrCorrupt] for the first
// one that cannot; those of the store.
func (s *Store) FsckFeeds(ctx context.Context) error {
	table := []byte{feedTable}
	for pair, err := range s.kv.Scan(ctx, kv.ScanOptions{Start: table, End: kv.PrefixEnd(table)}) {
		if err != nil {
			return fmt.Errorf("check feeds: %w", err)
		}
		if err := checkFeedPair(pair); err != nil {
			return err
		}
	}
	return nil
}

func checkFeedPair(pair kv.Pair) error {
	kind := byte(0)
	if len(pair.Key) > 1 {
		kind = pair.Key[1]
	}
	switch {
	case kind == feedRows:
		if _, _, err := splitFeedKey(pair.Key); err != nil {
			return err
		}
		_, err := decodeFeedRow(pair.Value)
		return err
	case kind == feedGenerations && len(pair.Key) == 2+4 && len(pair.Value) == len(feedNonce{}),
		kind == feedFloors && len(pair.Value) == feedPlaceBytes:
		return nil
	default:
		return corrupt("feed row of %d bytes under %q", len(pair.Value), pair.Key)
	}
}
