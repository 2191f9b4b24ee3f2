package refs

import (
	"encoding/binary"

	"packhorse/odb/kv"
)

// head is the row that every transaction of a repository requires and replaces.
//
//	sequence(8) count(8) nameBytes(8)
type head struct {
	sequence  uint64
	count     uint64 // refs in all namespaces
	nameBytes uint64 // the sum of the sizes of their names
}

func (h head) encode() []byte {
	row := make([]byte, 0, 24)
	row = binary.BigEndian.AppendUint64(row, h.sequence)
	row = binary.BigEndian.AppendUint64(row, h.count)
	return binary.BigEndian.AppendUint64(row, h.nameBytes)
}

func decodeHead(row []byte) (head, error) {
	if len(row) != 24 {
		return head{}, corrupt("head of %d bytes", len(row))
	}
	return head{
		sequence:  binary.BigEndian.Uint64(row),
		count:     binary.BigEndian.Uint64(row[8:]),
		nameBytes: binary.BigEndian.Uint64(row[16:]),
	}, nil
}

// require makes batch depend on the repository being where h says.
func (h head) require(batch *kv.Batch, repo RepoID) { batch.Require(headKey(repo), h.encode()) }
