package refs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// rowVersion is the first byte of every row of refs, and of receipts and feeds.
const rowVersion = 1

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// appendState appends the state of a ref, without its name:
//
//	flags(1: peeled) id(20) [peeled(20)] created sequence(uvarint) index(uvarint) time(varint, Unix milliseconds)
func appendState(dst []byte, ref *Ref) []byte {
	if ref.Peeled.IsZero() {
		dst = append(append(dst, 0), ref.ID[:]...)
	} else {
		dst = append(append(append(dst, 1), ref.ID[:]...), ref.Peeled[:]...)
	}
	dst = binary.AppendUvarint(dst, ref.Created.Sequence)
	dst = binary.AppendUvarint(dst, uint64(ref.Created.Index))
	return binary.AppendVarint(dst, ref.createdMillis)
}

// rowBytesMax bounds the key and the value of a ref's row, without its name.
const rowBytesMax = 17 + 1 + 1 + 2*20 + 3*binary.MaxVarintLen64

// encodeRow returns the value of a ref's row: version(1), its state, and its name if the key has no
// room for it.
func encodeRow(ref *Ref) []byte {
	row := appendState([]byte{rowVersion}, ref)
	if len(ref.Name) > plainNameMax {
		row = append(row, ref.Name...)
	}
	return row
}

// decodeRow returns the ref of a row. nameKey is the part of the key after the repository.
func decodeRow(nameKey, value []byte) (Ref, error) {
	d := decoder{rest: value}
	d.version()
	var ref Ref
	d.state(&ref)
	if len(nameKey) <= plainNameMax {
		ref.Name = string(nameKey)
	} else {
		ref.Name = string(d.take(len(d.rest)))
		if d.err == nil && (len(ref.Name) <= plainNameMax || ref.Name[:plainNameMax] != string(nameKey[:plainNameMax])) {
			d.err = corrupt("a long name that does not fit its key")
		}
	}
	if err := d.end(); err != nil {
		return Ref{}, fmt.Errorf("read ref %.200q: %w", nameKey, err)
	}
	return ref, nil
}

// readRef returns the ref of a stored name, or [ErrNotFound].
func readRef(ctx context.Context, reader kv.Reader, repo RepoID, name string) (Ref, error) {
	key := refKey(repo, name)
	value, err := reader.Get(ctx, key)
	if errors.Is(err, kv.ErrNotFound) {
		return Ref{}, ErrNotFound
	}
	if err != nil {
		return Ref{}, fmt.Errorf("read ref: %w", err)
	}
	return decodeNamed(key, value, name)
}

// decodeNamed is decodeRow for the row under the refKey of a name.
func decodeNamed(key, value []byte, name string) (Ref, error) {
	ref, err := decodeRow(key[1+len(RepoID{}):], value)
	if err == nil && ref.Name != name {
		err = corrupt("a row of another name")
	}
	return ref, err
}

// readKeys returns the values of keys, nil for those that are absent. The first kv.ReadCountMax are
// read at one instant, the others later.
func readKeys(ctx context.Context, reader kv.Reader, keys [][]byte) ([][]byte, error) {
	var values [][]byte
	for some := range slices.Chunk(keys, kv.ReadCountMax) {
		rows, err := reader.Read(ctx, kv.ReadSet{Keys: some})
		if err != nil {
			return nil, err
		}
		if values == nil {
			values = rows.Values
		} else {
			values = append(values, rows.Values...)
		}
	}
	return values, nil
}

// readRows returns the rows of a set that may have more keys than one read. The ranges and as many
// of its first keys as fit are read at one instant.
func readRows(ctx context.Context, reader kv.Reader, set kv.ReadSet) (kv.Rows, error) {
	first := min(len(set.Keys), kv.ReadCountMax-len(set.Ranges))
	rows, err := reader.Read(ctx, kv.ReadSet{Keys: set.Keys[:first], Ranges: set.Ranges})
	if err != nil {
		return kv.Rows{}, err
	}
	rest, err := readKeys(ctx, reader, set.Keys[first:])
	rows.Values = append(rows.Values, rest...)
	return rows, err
}

// refRange selects the rows of the refs with start <= name < end, and perhaps of others that share
// the first bytes of a long start or end. An empty end reaches to the last one.
func refRange(repo RepoID, start, end string) kv.ScanOptions {
	options := kv.ScanOptions{Start: refBound(repo, start), End: kv.PrefixEnd(tableKey(refTable, repo, 0))}
	if end != "" {
		options.End = refBound(repo, end)
	}
	if len(end) > plainNameMax {
		// Names that share the first bytes of end may lie below it or above it; their keys do not decide
		// that.
		options.End = kv.PrefixEnd(options.End)
	}
	return options
}

// scanRefs walks the stored refs with start <= name < end in byte order; an empty end reaches to
// the last one.
func scanRefs(ctx context.Context, reader kv.Reader, repo RepoID, start, end string) iter.Seq2[Ref, error] {
	options := refRange(repo, start, end)
	return func(yield func(Ref, error) bool) {
		emit := func(ref Ref) bool {
			return ref.Name < start || end != "" && ref.Name >= end || yield(ref, nil)
		}
		var long []Ref
		for pair, err := range reader.Scan(ctx, options) {
			if err != nil {
				yield(Ref{}, err)
				return
			}
			ref, err := decodeRow(pair.Key[1+len(repo):], pair.Value)
			if err != nil {
				yield(Ref{}, err)
				return
			}
			if len(long) > 0 && !sharesStart(long[0].Name, ref.Name) {
				if !flush(long, emit) {
					return
				}
				long = long[:0]
			}
			if len(ref.Name) > plainNameMax {
				long = append(long, ref)
			} else if !emit(ref) {
				return
			}
		}
		flush(long, emit)
	}
}

func sharesStart(long, name string) bool { return strings.HasPrefix(name, long[:plainNameMax]) }

// flush hands on, in order, the names that share their first plainNameMax bytes.
func flush(long []Ref, emit func(Ref) bool) bool {
	slices.SortFunc(long, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	for _, ref := range long {
		if !emit(ref) {
			return false
		}
	}
	return true
}

// prefixEnd returns the first name above those that begin with prefix, or "" if there is none.
func prefixEnd(prefix string) string { return string(kv.PrefixEnd([]byte(prefix))) }

// decoder reads a row from its start; the first fault sticks.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = corrupt("row that ends early or holds nonsense")
	}
	d.rest = nil
}

// end returns the first fault, or one for unread bytes.
func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.err = corrupt("bytes after the end of a row")
	}
	return d.err
}

func (d *decoder) take(n int) []byte {
	if n < 0 || len(d.rest) < n {
		d.fail()
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) version() {
	if v := d.byte(); d.err == nil && v != rowVersion {
		d.err = corrupt("row of version %d", v)
	}
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail()
		return ""
	}
	return string(d.take(int(n)))
}

func (d *decoder) uint64() uint64 {
	if data := d.take(8); data != nil {
		return binary.BigEndian.Uint64(data)
	}
	return 0
}

func (d *decoder) id() (id object.ID) {
	copy(id[:], d.take(len(id)))
	return id
}

func (d *decoder) state(ref *Ref) {
	flags := d.byte()
	ref.ID = d.id()
	if flags&1 != 0 {
		ref.Peeled = d.id()
	}
	sequence, index := d.uvarint(), d.uvarint()
	if flags > 1 || index > math.MaxUint32 {
		d.fail()
	}
	ref.Created = Creation{Sequence: sequence, Index: uint32(index)}
	ref.createdMillis = d.varint()
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}
