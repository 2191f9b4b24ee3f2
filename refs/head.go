package refs

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"time"

	"packhorse/odb/kv"
)

// head is the row that every transaction of a repository requires and replaces.
//
//	sequence(8) count(8) nameBytes(8) [token(8) [stamp(8) [millis(8)]]]
//
// Earlier releases have left rows without the last of these.
type head struct {
	sequence  uint64
	count     uint64 // refs in all namespaces
	nameBytes uint64 // the sum of the sizes of their names
	// token is the exclusive or of the marks of all transactions so far, see [Entry]. It tells states
	// of one sequence apart that belong to different histories, after a store has lost its end.
	token uint64
	// stamp is that of the last transaction that a feed tells, see [Store.enqueue]; 0 if each of them
	// was over a store of one process.
	stamp uint64
	// millis is the time of the last transaction, in Unix milliseconds; 0 if a release wrote the row
	// that did not keep it.
	millis uint64
}

// Version names one state of a repository's refs, also when the store has lost its last
// transactions and others have taken their sequences: as after a failover to a replica that did not
// have all of them yet. Equal versions show equal refs. The zero Version is that of no state.
type Version struct {
	Sequence uint64
	token    uint64
}

func (h head) version() Version { return Version{h.sequence, h.token} }

// following returns the head behind h that a transaction at a time leaves, with the counts of h,
// and the mark that it draws. No transaction is before the previous one, whatever clocks say.
func (h head) following(at time.Time) (next head, mark uint64) {
	next = h
	next.sequence++
	next.millis = max(h.millis, uint64(max(at.UnixMilli(), 1)))
	for mark = 0; mark == 0 || h.token^mark == 0; { // zero is that of a row without one
		var random [8]byte
		_, _ = rand.Read(random[:]) // does not fail
		mark = binary.BigEndian.Uint64(random[:])
	}
	next.token ^= mark
	return next, mark
}

// time returns when the last transaction happened.
func (h head) time() time.Time { return time.UnixMilli(int64(h.millis)).UTC() }

func (h head) encode() []byte {
	row := make([]byte, 0, 48)
	row = binary.BigEndian.AppendUint64(row, h.sequence)
	row = binary.BigEndian.AppendUint64(row, h.count)
	row = binary.BigEndian.AppendUint64(row, h.nameBytes)
	if h.token == 0 {
		return row
	}
	row = binary.BigEndian.AppendUint64(row, h.token)
	if h.stamp == 0 && h.millis == 0 {
		return row
	}
	row = binary.BigEndian.AppendUint64(row, h.stamp)
	if h.millis == 0 {
		return row
	}
	return binary.BigEndian.AppendUint64(row, h.millis)
}

func decodeHead(row []byte) (head, error) {
	if len(row) != 24 && len(row) != 32 && len(row) != 40 && len(row) != 48 {
		return head{}, corrupt("head of %d bytes", len(row))
	}
	h := head{
		sequence:  binary.BigEndian.Uint64(row),
		count:     binary.BigEndian.Uint64(row[8:]),
		nameBytes: binary.BigEndian.Uint64(row[16:]),
	}
	if len(row) >= 32 {
		if h.token = binary.BigEndian.Uint64(row[24:]); h.token == 0 {
			return head{}, corrupt("head with a token of zero")
		}
	}
	if len(row) >= 40 {
		if h.stamp = binary.BigEndian.Uint64(row[32:]); h.stamp == 0 && len(row) == 40 {
			return head{}, corrupt("head with a stamp of zero")
		}
	}
	if len(row) == 48 {
		if h.millis = binary.BigEndian.Uint64(row[40:]); h.millis == 0 || h.millis > math.MaxInt64 {
			return head{}, corrupt("head with a time of %d", h.millis)
		}
	}
	return h, nil
}

// require makes batch depend on the repository being where h says.
func (h head) require(batch *kv.Batch, repo RepoID) { batch.Require(headKey(repo), h.encode()) }
