// Package bloom has the changed-path Bloom filters of commits, as gitformat-commit-graph(5), "Bloom
// Filter Data", defines them: 10 bits a path, 7 hashes, hash version 2. The package is pure.
//
// Start at [New] and [Filter.HasAll].
package bloom

import (
	"encoding/binary"
	"math/bits"
	"strings"
)

// Filter holds the paths that a commit changed against its first parent, or that a root commit has:
// files, and the folders that they lie in. An empty one may hold every path.
type Filter []byte

const (
	filterBitsPerPath = 10
	filterHashCount   = 7
	// PathsMax is the number of paths that a filter can hold; a commit that changed more has [Full].
	PathsMax = 512
)

// Full is the filter that has every path.
var Full = Filter{0xff}

// New returns the filter of some paths.
func New(paths map[string]struct{}) Filter {
	if len(paths) > PathsMax {
		return Full
	}
	f := make(Filter, max((len(paths)*filterBitsPerPath+7)/8, 1))
	for path := range paths {
		key := NewKey(path)
		for i := range uint32(filterHashCount) {
			at := key.bit(i, len(f))
			f[at/8] |= 1 << (at % 8)
		}
	}
	return f
}

// Has reports whether a path may be in the filter; if not, it is not.
func (f Filter) Has(key Key) bool {
	if len(f) == 0 {
		return true
	}
	for i := range uint32(filterHashCount) {
		if at := key.bit(i, len(f)); f[at/8]&(1<<(at%8)) == 0 {
			return false
		}
	}
	return true
}

// Probe asks one filter for many keys: it multiplies where [Filter.Has] divides (Lemire, "Faster
// remainder by direct computation").
type Probe struct {
	filter  Filter
	inverse uint64
	bits    uint64 // the filter, if pathsMax is set
	// pathsMax is how many paths a small filter was made of, at most; 0 says nothing.
	pathsMax int
}

// Probe returns a Probe of f.
func (f Filter) Probe() Probe {
	if len(f) == 0 {
		return Probe{}
	}
	p := Probe{filter: f, inverse: ^uint64(0)/(8*uint64(len(f))) + 1}
	if len(f) <= 8 {
		var all [8]byte
		copy(all[:], f)
		p.bits = binary.LittleEndian.Uint64(all[:])
		p.pathsMax = 8 * len(f) / filterBitsPerPath // 0 for Full
	}
	return p
}

// Has is [Filter.Has].
func (p *Probe) Has(key Key) bool {
	if len(p.filter) == 0 {
		return true
	}
	for i := range uint32(filterHashCount) {
		if at := p.bit(key, i); p.filter[at/8]&(1<<(at%8)) == 0 {
			return false
		}
	}
	return true
}

// bit is [Key.bit].
func (p *Probe) bit(key Key, i uint32) uint64 {
	at, _ := bits.Mul64(p.inverse*uint64(key.first+i*key.second), 8*uint64(len(p.filter)))
	return at
}

// Cover is a number of different paths, and the bits that they set in a small filter.
type Cover struct {
	bits  uint64
	count int
}

// HasBeside reports whether a path may be in the filter together with those of a cover, and returns
// the cover of them all. It excludes more than Has, which is often wrong about small filters: as a
// filter says by its size how many paths it was made of, those beyond the cover have to account for
// every bit that the cover leaves, with at most 7 each.
func (p *Probe) HasBeside(c Cover, key Key) (Cover, bool) {
	if !p.Has(key) {
		return c, false
	}
	if p.pathsMax == 0 {
		return c, true
	}
	for i := range uint32(filterHashCount) {
		c.bits |= 1 << p.bit(key, i)
	}
	c.count++
	return c, bits.OnesCount64(p.bits&^c.bits) <= filterHashCount*(p.pathsMax-c.count)
}

// HasAll reports whether different paths may be in the filter together; see [Probe.HasBeside].
func (f Filter) HasAll(keys []Key) bool {
	p, c := f.Probe(), Cover{}
	for _, key := range keys {
		var ok bool
		if c, ok = p.HasBeside(c, key); !ok {
			return false
		}
	}
	return true
}

// Key is the pair of hashes that filters are asked with for a path.
type Key struct{ first, second uint32 }

// NewKey returns the key of a path.
func NewKey(path string) Key {
	return Key{murmur3(0x293ae76f, path), murmur3(0x7e646e2c, path)}
}

// bit returns the place of the i-th hash in a filter of size bytes.
func (k Key) bit(i uint32, size int) uint64 {
	return uint64(k.first+i*k.second) % (8 * uint64(size))
}

// Keys returns the keys of a path and of the folders above it.
func Keys(path string) []Key {
	keys := []Key{NewKey(path)}
	for at := strings.LastIndexByte(path, '/'); at > 0; at = strings.LastIndexByte(path[:at], '/') {
		keys = append(keys, NewKey(path[:at]))
	}
	return keys
}

// murmur3 is the 32-bit MurmurHash3.
func murmur3(seed uint32, data string) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	mix := func(k uint32) uint32 { return bits.RotateLeft32(k*c1, 15) * c2 }
	hash, size := seed, uint32(len(data))
	for len(data) >= 4 {
		hash = bits.RotateLeft32(hash^mix(binary.LittleEndian.Uint32([]byte(data[:4]))), 13)*5 + 0xe6546b64
		data = data[4:]
	}
	if len(data) > 0 {
		var tail [4]byte
		copy(tail[:], data)
		hash ^= mix(binary.LittleEndian.Uint32(tail[:]))
	}
	hash ^= size
	hash = (hash ^ hash>>16) * 0x85ebca6b
	hash = (hash ^ hash>>13) * 0xc2b2ae35
	return hash ^ hash>>16
}
