package refs

import (
	"crypto/sha256"
	"encoding/binary"

	"packhorse/odb/kv"
)

// The tables of the package; a key begins with its table.
//
//	h repo                                   head: sequence and counts, see head
//	r repo name                              a ref, see encodeRow
//	c repo namespace(1) sequence(8) index(4) a branch by its creation: its name
//	j repo sequence(8) index(4)              the journal, see encodeEntry
//	t repo                                   the floor of the journal, see floor
//	t repo name ...                          former states of refs, see formerKey
//	b repo                                   the floor of the history, see HistoryFloor
//	a repo                                   the server that asks the others to yield, see yield.go
//	i hour(4) scope(32)                      receipts of idempotency keys, see appendReceipt
//	e kind(1) ...                            the feeds of organizations, see feedKey
//
// Numbers are big endian, so that keys sort as numbers do.
const (
	headTable     = 'h'
	refTable      = 'r'
	creationTable = 'c'
	journalTable  = 'j'
	formerTable   = 't'
	historyTable  = 'b'
	yieldTable    = 'a'
	receiptTable  = 'i'
	feedTable     = 'e'
)

// A key has room for 1,007 bytes of a name. A longer name than plainNameMax keeps its first
// plainNameMax bytes there, the SHA-256 of the whole name takes the rest of the key, and the value
// holds the name. At most longNamesMax names share their first bytes, so that a reader can put them
// in order.
const (
	plainNameMax = kv.KeyBytesMax - 1 - len(RepoID{}) - sha256.Size
	longNamesMax = 1000
)

func tableKey(table byte, repo RepoID, room int) []byte {
	key := make([]byte, 0, 1+len(repo)+room)
	return append(append(key, table), repo[:]...)
}

func headKey(repo RepoID) []byte { return tableKey(headTable, repo, 0) }

func refKey(repo RepoID, name string) []byte {
	key := tableKey(refTable, repo, len(name))
	if len(name) <= plainNameMax {
		return append(key, name...)
	}
	sum := sha256.Sum256([]byte(name))
	return append(append(key, name[:plainNameMax]...), sum[:]...)
}

func refKeys(repo RepoID, names []string) [][]byte {
	keys := make([][]byte, len(names), len(names)+1) // callers add the head
	for i, name := range names {
		keys[i] = refKey(repo, name)
	}
	return keys
}

// refBound returns a key that is not above any ref from name on: the start of a scan. Refs before
// name are below it too, except those that share the first bytes of a long name.
func refBound(repo RepoID, name string) []byte {
	return append(tableKey(refTable, repo, len(name)), name[:min(len(name), plainNameMax)]...)
}

func creationKey(repo RepoID, ns Namespace, at Creation) []byte {
	key := append(tableKey(creationTable, repo, 13), byte(ns))
	key = binary.BigEndian.AppendUint64(key, at.Sequence)
	return binary.BigEndian.AppendUint32(key, at.Index)
}

// floorKey returns the key of the floor of a journal.
func floorKey(repo RepoID) []byte { return tableKey(formerTable, repo, 0) }

func journalKey(repo RepoID, sequence uint64, index uint32) []byte {
	key := tableKey(journalTable, repo, 12)
	key = binary.BigEndian.AppendUint64(key, sequence)
	return binary.BigEndian.AppendUint32(key, index)
}

// journalPosition decodes the end of a journalKey.
func journalPosition(key []byte) (sequence uint64, index uint32, err error) {
	if len(key) != 1+len(RepoID{})+12 {
		return 0, 0, corrupt("journal key of %d bytes", len(key))
	}
	rest := key[1+len(RepoID{}):]
	return binary.BigEndian.Uint64(rest), binary.BigEndian.Uint32(rest[8:]), nil
}

func receiptKey(hour uint32, scope [sha256.Size]byte) []byte {
	key := binary.BigEndian.AppendUint32([]byte{receiptTable}, hour)
	return append(key, scope[:]...)
}
