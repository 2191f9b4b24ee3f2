package grep

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"packhorse/odb"
	"packhorse/odb/lru"
	"packhorse/pack/object"
)

// Trigrams remembers which sequences of three bytes stand in files that were searched, within a
// budget: the next search for a literal, in another commit too, then reads only the files that may
// have it. A blob's ID is the hash of its bytes, so what is remembered never becomes stale. It may
// be used concurrently; nil remembers nothing.
type Trigrams struct {
	known    lru.Cache[trigramsKey, trigramSet]
	bytesMax int64
}

// trigramsKey names a blob of a pool: nobody learns by the time of an answer what others read.
type trigramsKey struct {
	pool odb.PoolID
	blob object.ID
}

// trigramsBytes is what an entry costs beside its set: its key twice, and the list that holds it.
const trigramsBytes = 200

// NewTrigrams returns an empty memory of bytesMax bytes.
func NewTrigrams(bytesMax int64) *Trigrams {
	return &Trigrams{known: lru.New[trigramsKey, trigramSet](bytesMax, bytesMax/16), bytesMax: bytesMax}
}

// trigramSet is a Bloom filter with one hash function of the trigrams at even offsets of a file. A
// literal stands at an even offset or at an odd one, and so has either its first or its second
// trigram there, and every other one from it on. That is half of the work and of the bits. The set
// of a file that git treats as binary is empty, since nothing is found there.
type trigramSet []uint64

// Sizes of a set, in bits. A new one has one to two for each byte of the file.
const (
	setBitsLog = 18
	setBitsMax = 1 << setBitsLog
	setBitsMin = 64
	// setSparseness is the part of the bits below which a set is halved.
	setSparseness = 8
)

// trigramHash returns setBitsLog bits that depend on the lower three bytes of window, and not on
// the case of ASCII letters in them.
func trigramHash(window uint32) uint32 {
	const (
		lower      = 0x202020
		multiplier = 0x9E3779 << 8 // from the golden ratio; the shift loses the fourth byte
	)
	return (window | lower) * multiplier >> (32 - setBitsLog)
}

// hasAll reports whether a file of this set may have all trigrams of some hashes.
func (s trigramSet) hasAll(hashes []uint32) bool {
	if len(s) == 0 {
		return false
	}
	mask := uint32(64*len(s) - 1)
	for _, hash := range hashes {
		if bit := hash & mask; s[bit/64]>>(bit%64)&1 == 0 {
			return false
		}
	}
	return true
}

// trigramsIn returns the set of a text.
func trigramsIn(text []byte) trigramSet {
	if len(text) < 3 {
		return nil
	}
	size := min(max(1<<bits.Len(uint(len(text))), setBitsMin), setBitsMax)
	set, mask := make(trigramSet, size/64), uint32(size-1)
	rest := text
	for ; len(rest) >= 4; rest = rest[2:] {
		bit := trigramHash(binary.LittleEndian.Uint32(rest)) & mask
		set[bit/64] |= 1 << (bit % 64)
	}
	if len(rest) == 3 {
		bit := trigramHash(uint32(rest[0])|uint32(rest[1])<<8|uint32(rest[2])<<16) & mask
		set[bit/64] |= 1 << (bit % 64)
	}
	return set.dense()
}

// dense returns the set in as few bytes as suffice.
func (s trigramSet) dense() trigramSet {
	set := s
	for 64*len(set) > setBitsMin {
		ones := 0
		for _, word := range set {
			ones += bits.OnesCount64(word)
		}
		if ones*setSparseness > 64*len(set) {
			break
		}
		half := len(set) / 2
		for i, word := range set[half:] {
			set[i] |= word
		}
		set = set[:half]
	}
	if len(set) == len(s) {
		return s
	}
	return slices.Clone(set)
}

// trigramsOf returns lists of hashes. A file that has one of the literals has all trigrams of one
// of the lists. It returns nil if it knows no such lists.
func trigramsOf(literals []requiredLiteral) [][]uint32 {
	var lists [][]uint32
	for _, l := range literals {
		text := l.stretch
		if len(text) < 4 {
			return nil
		}
		for first := range 2 {
			var hashes []uint32
			for i := first; i+3 <= len(text); i += 2 {
				hashes = append(hashes, trigramHash(uint32(text[i])|uint32(text[i+1])<<8|uint32(text[i+2])<<16))
			}
			lists = append(lists, hashes)
		}
	}
	return lists
}

// hasFoldedSigns reports whether a text has a Kelvin or a long s. Without regard to case these are
// a k and an s, which no set says.
func hasFoldedSigns(text []byte) bool {
	return bytes.Contains(text, []byte("\u212a")) || bytes.Contains(text, []byte("\u017f"))
}

// recollection is the use that one search makes of what is remembered, and of what is stored.
type recollection struct {
	known  *Trigrams     // nil: none
	stored *odb.Trigrams // nil: none
	pool   odb.PoolID
	wanted [][]uint32 // a file with a match has all trigrams of one of these
	// room is what the search may still look up and add, in bytes: of a tree that is too large for the
	// memory, the same files are remembered each time.
	room atomic.Int64
}

func (r *recollection) begin(known *Trigrams, pool odb.PoolID, p *Pattern) {
	r.pool, r.wanted = pool, p.trigrams
	if p.trigrams != nil && known != nil {
		r.known = known
		r.room.Store(known.bytesMax / 2)
	}
}

// open opens the stored trigrams of a view, if the pattern has any. The caller calls close.
func (r *recollection) open(ctx context.Context, view *odb.View) (err error) {
	if r.wanted != nil {
		r.stored, err = view.OpenTrigrams(ctx)
	}
	return err
}

func (r *recollection) close() {
	if r.stored != nil {
		r.stored.Close()
	}
}

// has reports whether a file of a set may match.
func (r *recollection) has(set trigramSet) bool {
	return slices.ContainsFunc(r.wanted, set.hasAll)
}

// recall reports whether the trigrams of a file are remembered or stored, and whether it may match.
func (r *recollection) recall(ctx context.Context, id object.ID) (known, mayMatch bool, err error) {
	if r.known != nil {
		if set, ok := r.known.known.Get(trigramsKey{r.pool, id}); ok {
			r.room.Add(-set.cost())
			return true, r.has(set), nil
		}
	}
	if r.stored == nil {
		return false, true, nil
	}
	stored, err := r.stored.Find(ctx, id)
	if err != nil {
		return false, false, fmt.Errorf("read stored trigrams: %w", err)
	}
	set, ok := decodeTrigrams(stored)
	return ok, !ok || r.has(set), nil
}

// learn remembers a file, and reports whether it may match.
func (r *recollection) learn(id object.ID, text []byte, binary bool) (mayMatch bool) {
	if r.known == nil || r.room.Load() <= 0 || !binary && hasFoldedSigns(text) {
		return true
	}
	var set trigramSet
	if !binary {
		set = trigramsIn(text)
	}
	r.known.known.Put(trigramsKey{r.pool, id}, set, set.cost())
	r.room.Add(-set.cost())
	return r.has(set)
}

// cost is what a set takes, in bytes.
func (s trigramSet) cost() int64 { return trigramsBytes + 8*int64(len(s)) }
