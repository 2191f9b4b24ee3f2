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
//	e u organization NUL stamp(8) repo(16)         one without a place yet, see [Store.enqueue]
//	e n organization                               the last place that one of those was given(12) nonce(8)
//	e g generation(4)                              the nonce of a generation(8)
//	e f organization                               the place of the last row that was trimmed(12) [its nonce(8)]
const (
	feedRows        = 'p'
	feedUnplaced    = 'u'
	feedEnds        = 'n'
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

func feedEndKey(org string) []byte { return append([]byte{feedTable, feedEnds}, org...) }

// unplacedBytes is the size of what follows the organization in the key of a row without a place.
const unplacedBytes = 8 + len(RepoID{})

// unplacedRange selects the rows of an organization that have no place yet, in the order in which
// they get one.
func unplacedRange(org string, limit int) kv.ScanOptions {
	start := append(append([]byte{feedTable, feedUnplaced}, org...), 0)
	return kv.ScanOptions{Start: start, End: kv.PrefixEnd(start), Limit: limit}
}

// anyUnplaced finds out whether any row has no place yet.
var anyUnplaced = kv.ScanOptions{
	Start: []byte{feedTable, feedUnplaced}, End: []byte{feedTable, feedUnplaced + 1}, Limit: 1,
}

func unplacedKey(org string, stamp uint64, repo RepoID) []byte {
	key := make([]byte, 0, 2+len(org)+1+unplacedBytes)
	key = append(append(append(key, feedTable, feedUnplaced), org...), 0)
	return append(binary.BigEndian.AppendUint64(key, stamp), repo[:]...)
}

// splitFeedKey decodes a feedKey.
func splitFeedKey(key []byte) (feedPlace, error) {
	_, rest, err := splitOrg(key, feedPlaceBytes)
	if err != nil {
		return feedPlace{}, err
	}
	return readFeedPlace(rest), nil
}

// splitOrg splits the key of a row at the end of its organization, which so many bytes follow.
func splitOrg(key []byte, size int) (org string, rest []byte, err error) {
	end := len(key) - size - 1
	if end < 2 || bytes.IndexByte(key[2:], 0) != end-2 {
		return "", nil, corrupt("feed key %q", key)
	}
	return string(key[2:end]), key[end+1:], nil
}

// feedMark is a place with the nonce that its row got with it, none if the row has none of its own.
type feedMark struct {
	place feedPlace
	nonce feedNonce
}

func (m feedMark) encode() []byte {
	value := m.place.append(make([]byte, 0, feedPlaceBytes+len(m.nonce)))
	if m.nonce == (feedNonce{}) {
		return value
	}
	return append(value, m.nonce[:]...)
}

func decodeFeedMark(value []byte) (feedMark, error) {
	switch len(value) {
	case feedPlaceBytes:
		return feedMark{place: readFeedPlace(value)}, nil
	case feedPlaceBytes + len(feedNonce{}):
		return feedMark{readFeedPlace(value), feedNonce(value[feedPlaceBytes:])}, nil
	default:
		return feedMark{}, corrupt("place in a feed of %d bytes", len(value))
	}
}

// Kinds of rows.
const (
	feedChanged = iota + 1 // a transaction that changed refs
	feedCreated            // the creation of a repository, with the refs that it began with; or its return
	feedDeleted            // its deletion
)

// feedRow is the row of a transaction. What it changed is in the journal of the repository. A
// deletion takes the journal along, so its row has what there is to tell.
//
//	version(1) kind(1) repo(16) sequence(uvarint) events(uvarint) time(varint, Unix milliseconds) [actor cause name]
//
// A row that was written without a place gets a nonce with it: version 2, nonce(8), and then as
// above.
type feedRow struct {
	nonce    feedNonce // zero: that of the generation counts
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

// placedRowVersion is the first byte of a row with a nonce.
const placedRowVersion = 2

// placedRow returns the value of a row that gets its place, with a nonce.
func placedRow(value []byte, nonce feedNonce) ([]byte, error) {
	if len(value) == 0 || value[0] != rowVersion {
		return nil, corrupt("feed row of %d bytes without a place", len(value))
	}
	placed := make([]byte, 0, len(value)+len(nonce))
	return append(append(append(placed, placedRowVersion), nonce[:]...), value[1:]...), nil
}

func decodeFeedRow(value []byte) (feedRow, error) {
	d := decoder{rest: value}
	var row feedRow
	if len(value) > 0 && value[0] == placedRowVersion {
		d.byte()
		copy(row.nonce[:], d.take(len(row.nonce)))
		if row.nonce == (feedNonce{}) {
			d.fail()
		}
	} else {
		d.version()
	}
	row.kind = d.byte()
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
		if _, err := splitFeedKey(pair.Key); err != nil {
			return err
		}
		_, err := decodeFeedRow(pair.Value)
		return err
	case kind == feedUnplaced:
		if _, _, err := splitOrg(pair.Key, unplacedBytes); err != nil {
			return err
		}
		row, err := decodeFeedRow(pair.Value)
		if err == nil && row.nonce != (feedNonce{}) {
			err = corrupt("feed row with a nonce and no place")
		}
		return err
	case kind == feedFloors || kind == feedEnds:
		_, err := decodeFeedMark(pair.Value)
		return err
	case kind == feedGenerations && len(pair.Key) == 2+4 && len(pair.Value) == len(feedNonce{}):
		return nil
	default:
		return corrupt("feed row of %d bytes under %q", len(pair.Value), pair.Key)
	}
}
