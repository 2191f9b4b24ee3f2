package gitdir

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"packhorse/odb/lru"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// wholeMax is the size in bytes up to which an object that is no delta is hashed from memory.
const wholeMax = 1 << 20

// indexedBytes bounds the objects in memory while deltas are resolved, beside the one at work and
// its base.
const indexedBytes = 64 << 20

// indexer reads a pack and makes its index. It needs some 50 bytes of memory for each object.
type indexer struct {
	file    *os.File
	entries []indexed
	byID    map[object.ID][]uint32 // deltas by the object that they build on
	cache   lru.Cache[uint32, whole]
	trailer [pack.TrailerSize]byte
}

// indexed is an entry. The deltas that build on it are a list.
type indexed struct {
	offset       int64
	packedAt     int64
	id           object.ID
	size         int64 // inflated
	crc          uint32
	base         uint32
	first, next  uint32 // of the deltas; the entry's number plus 1, or 0
	kind         object.Type
	delta, known bool
}

// storePack writes a pack with its index into a folder, under the name that git gives it, and syncs
// both.
func storePack(ctx context.Context, dir string, from io.Reader) (count int, size int64, err error) {
	path := filepath.Join(dir, "incoming.pack")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
	if err != nil {
		return 0, 0, err
	}
	x := &indexer{
		file: file, byID: make(map[object.ID][]uint32), cache: lru.New[uint32, whole](indexedBytes, indexedBytes/4),
	}
	err = x.read(ctx, from)
	if err == nil {
		err = x.resolve(ctx)
	}
	if err == nil {
		size, err = file.Seek(0, io.SeekEnd)
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return 0, 0, err
	}
	name := filepath.Join(dir, "pack-"+hex.EncodeToString(x.trailer[:]))
	if err := x.writeIndex(name + ".idx"); err != nil {
		return 0, 0, err
	}
	return len(x.entries), size, os.Rename(path, name+".pack")
}

// read stores the pack, and hashes what is no delta.
func (x *indexer) read(ctx context.Context, from io.Reader) error {
	buffered := bufio.NewWriterSize(x.file, 256<<10)
	const all = math.MaxInt64
	reader := pack.NewReader(from, pack.ReaderOptions{Raw: buffered, Limits: pack.Limits{
		ObjectSizeMax: all, CountMax: all, PackSizeMax: all, InflatedMax: all,
	}})
	var content []byte
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		row := indexed{
			offset: e.Offset, packedAt: e.Offset + int64(e.HeaderSize), size: e.Size,
			kind: e.Kind.Type(), delta: e.Kind.IsDelta(),
		}
		if !row.delta {
			hasher := object.NewHasher(row.kind, e.Size)
			if e.Size > wholeMax {
				_, err = io.Copy(hasher, reader)
			} else if content, err = reader.ReadContent(content[:0]); err == nil {
				_, err = hasher.Write(content)
			}
			if err == nil {
				row.id, err = hasher.Sum()
			}
			row.known = true
		} else {
			_, err = io.Copy(io.Discard, reader)
		}
		if err != nil {
			return err
		}
		row.crc = reader.Entry().CRC32
		if err := x.add(row, e); err != nil {
			return err
		}
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	_, err := x.file.ReadAt(x.trailer[:], reader.Offset()-pack.TrailerSize)
	return err
}

// add appends an entry, to the list of its base too.
func (x *indexer) add(row indexed, e pack.Entry) error {
	number := uint32(len(x.entries))
	x.entries = append(x.entries, row)
	if e.Kind == pack.KindRefDelta {
		x.byID[e.BaseID] = append(x.byID[e.BaseID], number)
	}
	if e.Kind == pack.KindOFSDelta {
		base := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].offset >= e.BaseOffset })
		if x.entries[base].offset != e.BaseOffset {
			return fmt.Errorf("%w: the delta at %d has no base", pack.ErrCorrupt, e.Offset)
		}
		x.join(uint32(base), number)
	}
	return nil
}

// join notes that an entry builds on another.
func (x *indexer) join(base, number uint32) {
	x.entries[number].base = base
	x.entries[number].next, x.entries[base].first = x.entries[base].first, number+1
}

// resolve hashes the deltas: those of a base directly behind it, so that the base is in memory.
func (x *indexer) resolve(ctx context.Context) error {
	var pending []uint32
	left := 0
	for number := range x.entries {
		if x.entries[number].delta {
			left++
		} else {
			pending = append(pending, uint32(number))
		}
	}
	slices.Reverse(pending)
	for len(pending) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		number := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		row := &x.entries[number]
		if !row.known {
			found, err := x.content(number)
			if err != nil {
				return err
			}
			if row.id, err = object.Hash(found.kind, found.data); err != nil {
				return err
			}
			row.kind, row.known = found.kind, true
			left--
		}
		for _, child := range x.byID[row.id] {
			x.join(number, child)
		}
		delete(x.byID, row.id)
		for child := row.first; child != 0; child = x.entries[child-1].next {
			pending = append(pending, child-1)
		}
	}
	if left > 0 {
		return fmt.Errorf("%w: %d deltas have no base", pack.ErrCorrupt, left)
	}
	return nil
}

// content returns the object of an entry.
func (x *indexer) content(number uint32) (whole, error) {
	var chain []uint32
	var base whole
	for {
		if known, ok := x.cache.Get(number); ok {
			base = known
			break
		}
		row := &x.entries[number]
		if !row.delta {
			data, err := x.inflate(row)
			if err != nil {
				return whole{}, err
			}
			base = whole{row.kind, data}
			x.cache.Put(number, base, int64(cap(data)))
			break
		}
		chain = append(chain, number)
		number = row.base
	}
	for _, number := range slices.Backward(chain) {
		program, err := x.inflate(&x.entries[number])
		if err != nil {
			return whole{}, err
		}
		data, err := delta.Apply(nil, base.data, program, math.MaxInt64)
		if err != nil {
			return whole{}, fmt.Errorf("delta at %d: %w", x.entries[number].offset, err)
		}
		base.data = data
		x.cache.Put(number, base, int64(cap(data)))
	}
	return base, nil
}

// inflate reads the content of an entry from the file.
func (x *indexer) inflate(row *indexed) ([]byte, error) {
	stream := pack.NewInflater(io.NewSectionReader(x.file, row.packedAt, math.MaxInt64-row.packedAt))
	defer func() { _ = stream.Close() }()
	data := make([]byte, row.size)
	if _, err := io.ReadFull(stream, data); err != nil {
		return nil, fmt.Errorf("read the pack at %d: %w", row.offset, err)
	}
	return data, nil
}

// writeIndex writes the index: see [packIndex].
func (x *indexer) writeIndex(path string) error {
	slices.SortFunc(x.entries, func(a, b indexed) int { return a.id.Compare(b.id) })
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	sum := sha1.New()
	buffered := bufio.NewWriterSize(file, 256<<10)
	x.writeRows(io.MultiWriter(buffered, sum))
	_, _ = buffered.Write(sum.Sum(nil)) // Flush tells of errors
	return errors.Join(buffered.Flush(), file.Sync(), file.Close())
}

// writeRows writes the index but for its checksum to a buffer that remembers its errors.
func (x *indexer) writeRows(to io.Writer) {
	row := make([]byte, 0, 8)
	number := func(n uint32) { _, _ = to.Write(binary.BigEndian.AppendUint32(row, n)) }
	_, _ = io.WriteString(to, indexMagic)
	at := 0
	for first := range 256 {
		for at < len(x.entries) && int(x.entries[at].id[0]) <= first {
			at++
		}
		number(uint32(at))
	}
	for i := range x.entries {
		_, _ = to.Write(x.entries[i].id[:])
	}
	for i := range x.entries {
		number(x.entries[i].crc)
	}
	var large []int64
	for i := range x.entries {
		offset := x.entries[i].offset
		if offset >= largeOffset {
			large = append(large, offset)
			offset = largeOffset | int64(len(large)-1)
		}
		number(uint32(offset))
	}
	for _, offset := range large {
		_, _ = to.Write(binary.BigEndian.AppendUint64(row, uint64(offset)))
	}
	_, _ = to.Write(x.trailer[:])
}
