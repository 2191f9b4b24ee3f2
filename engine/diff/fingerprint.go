package diff

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Fingerprint summarizes a content for similarity estimates: it counts the bytes of each of 107,927
// kinds of lines, where a line ends after 64 bytes at the latest, and its kind is a hash. A last
// line without an end is ignored, and in a text also the CR of a CR LF. It is the one of git
// (diffcore-delta.c), and takes 8 bytes for each kind that occurs.
type Fingerprint struct {
	size  int64
	spans []span
}

// span is a kind of lines and the bytes that lines of this kind take.
type span struct{ kind, bytes uint32 }

const (
	spanKinds    = 107_927
	spanBytesMax = 64

	// binaryProbe is the length of the beginning that is searched for a NUL, which makes a content
	// binary.
	binaryProbe = 8_000
	// binarySize is the size in bytes above which git takes any content for a binary one:
	// core.bigFileThreshold.
	binarySize = 512 << 20
)

// IsBinary reports whether git treats data as binary.
func IsBinary(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), binaryProbe)], 0) >= 0 || len(data) > binarySize
}

// NewFingerprint returns the fingerprint of a content.
func NewFingerprint(data []byte) *Fingerprint {
	c := counters.Get().(*counter)
	defer counters.Put(c)
	c.begin(IsBinary(data))
	c.add(data)
	return c.finish(int64(len(data)))
}

// ReadFingerprint returns the fingerprint of a stored blob of any size.
func ReadFingerprint(ctx context.Context, objects Objects, id object.ID) (*Fingerprint, error) {
	info, err := objects.Stat(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", id, err)
	}
	if info.Size <= wholeMax {
		_, data, err := objects.Read(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("read blob %s: %w", id, err)
		}
		return NewFingerprint(data), nil
	}
	blob, err := objects.Open(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", id, err)
	}
	defer blob.Close()
	return streamFingerprint(blob)
}

// wholeMax is the size in bytes of the largest blob that is read at once only to be compared.
const wholeMax = 8 << 20

func streamFingerprint(blob *odb.Object) (*Fingerprint, error) {
	c := counters.Get().(*counter)
	defer counters.Put(c)
	s := &fingerprintStream{counter: c, size: blob.Size}
	_, err := blob.WriteTo(s)
	f := c.finish(blob.Size) // empties the counter in any case
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", blob.ID, err)
	}
	return f, nil
}

// fingerprintStream feeds a counter piece by piece. It holds back bytes whose meaning depends on
// the next ones.
type fingerprintStream struct {
	counter *counter
	size    int64
	head    []byte // until it is known whether the content is binary
	begun   bool
	isCR    bool // the last byte was one, and has not been counted
}

func (s *fingerprintStream) Write(p []byte) (int, error) {
	n := len(p)
	if !s.begun {
		s.head = append(s.head, p...)
		if len(s.head) < binaryProbe {
			return n, nil
		}
		s.counter.begin(IsBinary(s.head) || s.size > binarySize)
		p, s.head, s.begun = s.head, nil, true
	}
	if s.isCR && len(p) > 0 && p[0] != '\n' {
		s.counter.count('\r')
	}
	if s.isCR = len(p) > 0 && p[len(p)-1] == '\r' && !s.counter.binary; s.isCR {
		p = p[:len(p)-1]
	}
	s.counter.add(p)
	return n, nil
}

// counter counts the bytes of each kind of line.
type counter struct {
	bytes  [spanKinds]uint32
	kinds  []uint32 // that were met
	binary bool

	low, high uint32 // the hash of the line so far
	length    uint32 // of the line so far
}

var counters = sync.Pool{New: func() any { return new(counter) }}

func (c *counter) begin(binary bool) { c.binary, c.low, c.high, c.length = binary, 0, 0, 0 }

// add counts the lines in data, which may begin and end within one. A carriage return at the end of
// data is counted.
func (c *counter) add(data []byte) {
	low, high, length := c.low, c.high, c.length
	for i, b := range data {
		if b == '\r' && !c.binary && i+1 < len(data) && data[i+1] == '\n' {
			continue
		}
		low, high = low<<7^high>>25, high<<7^low>>25
		low += uint32(b)
		length++
		if length == spanBytesMax || b == '\n' {
			c.end((low+high*0x61)%spanKinds, length)
			low, high, length = 0, 0, 0
		}
	}
	c.low, c.high, c.length = low, high, length
}

// count counts one byte as it is.
func (c *counter) count(b byte) {
	one := [1]byte{b}
	c.add(one[:])
}

func (c *counter) end(kind, length uint32) {
	if c.bytes[kind] == 0 {
		c.kinds = append(c.kinds, kind)
	}
	c.bytes[kind] += length
}

// finish returns the counts and empties the counter.
func (c *counter) finish(size int64) *Fingerprint {
	f := &Fingerprint{size: size, spans: make([]span, len(c.kinds))}
	for i, kind := range c.kinds {
		f.spans[i] = span{kind, c.bytes[kind]}
		c.bytes[kind] = 0
	}
	c.kinds = c.kinds[:0]
	return f
}

// Score returns the similarity of two contents, from 0 to [ScoreMax]: the share of the larger one's
// bytes that both have.
func Score(a, b *Fingerprint) int {
	table := comparisons.Get().(*comparison)
	defer comparisons.Put(table)
	table.set(b)
	score := table.score(a)
	table.clear()
	return score
}

// MayScore reports, from the sizes of two contents alone, whether they may reach a score.
func MayScore(aSize, bSize int64, score int) bool {
	larger, smaller := max(aSize, bSize), min(aSize, bSize)
	return larger*int64(ScoreMax-score) >= (larger-smaller)*ScoreMax
}

// comparison holds one fingerprint against many.
type comparison struct {
	bytes [spanKinds]uint32
	of    *Fingerprint
}

var comparisons = sync.Pool{New: func() any { return new(comparison) }}

func (t *comparison) set(f *Fingerprint) {
	t.of = f
	for _, s := range f.spans {
		t.bytes[s.kind] = s.bytes
	}
}

func (t *comparison) score(f *Fingerprint) int {
	larger := max(f.size, t.of.size)
	if larger == 0 {
		return 0
	}
	common := uint64(0)
	for _, s := range f.spans {
		common += uint64(min(s.bytes, t.bytes[s.kind]))
	}
	return int(common * ScoreMax / uint64(larger))
}

func (t *comparison) clear() {
	for _, s := range t.of.spans {
		t.bytes[s.kind] = 0
	}
	t.of = nil
}
