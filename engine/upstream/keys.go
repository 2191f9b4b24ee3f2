package upstream

import (
	"crypto/sha256"

	"packhorse/refs"
)

// The tables of this package: the first byte of every key.
const (
	tableState = 'U' // repository id -> State
	tableRef   = 'v' // repository id, kind, hash of a ref's name -> object id, name
)

// kind distinguishes the rows of table v.
type kind byte

const (
	seen kind = 's' // value of the ref when both sides were last equal, or a value that the far side had
	held kind = 'h' // value that an import gave the ref here, which is not sent; the zero ID for its deletion
)

// hashSize is the length of the part of a name's hash in a key: names are longer than keys may be.
const hashSize = 16

// StateKey is the key of a repository's state.
func StateKey(repo refs.RepoID) []byte { return append([]byte{tableState}, repo[:]...) }

func refsPrefix(repo refs.RepoID) []byte { return append([]byte{tableRef}, repo[:]...) }

func refKey(repo refs.RepoID, k kind, name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return append(append(refsPrefix(repo), byte(k)), sum[:hashSize]...)
}
