package gitdir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sort"
	"syscall"

	"packhorse/pack"
	"packhorse/pack/object"
)

// packIndex is a pack and its index. The index is version 2:
//
//	"\377tOc" | version 4 B | fan-out 256 * 4 B | IDs n * 20 B | CRCs n * 4 B | offsets n * 4 B |
//	large offsets m * 8 B | SHA-1 of the pack | SHA-1 of all before
//
// A position is the place of an object in the order of IDs, a rank that in the order of offsets.
type packIndex struct {
	path  string // without its ending
	pack  *os.File
	end   int64  // where the entries end
	index []byte // mapped
	count int
	order []uint32 // positions by rank
	state []state  // by position
}

const (
	indexMagic    = "\377tOc\x00\x00\x00\x02"
	indexHeadSize = len(indexMagic) + 256*4
	largeOffset   = 1 << 31 // flag of a row that names a large offset
)

// openPackIndex opens a pack by the path of its files without their ending. A pack that has gone
// since its folder was listed is nil.
func openPackIndex(path string) (p *packIndex, err error) {
	file, err := os.Open(path + ".pack")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p = &packIndex{path: path, pack: file}
	if err := p.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s.idx: %w", path, err), p.close())
	}
	return p, nil
}

func (p *packIndex) load() error {
	info, err := p.pack.Stat()
	if err != nil {
		return err
	}
	p.end = info.Size() - pack.TrailerSize
	if p.index, err = mapFile(p.path + ".idx"); err != nil {
		return err
	}
	if !bytes.HasPrefix(p.index, []byte(indexMagic)) || len(p.index) < indexHeadSize {
		return fmt.Errorf("%w: an index that is not of version 2; git index-pack makes a new one", ErrUnsupported)
	}
	p.count = int(binary.BigEndian.Uint32(p.index[indexHeadSize-4:]))
	if need := int64(indexHeadSize) + int64(p.count)*(object.IDSize+8) + 2*object.IDSize; int64(len(p.index)) < need {
		return fmt.Errorf("%d bytes are too few for %d objects", len(p.index), p.count)
	}
	p.order = make([]uint32, p.count)
	for i := range p.order {
		p.order[i] = uint32(i)
		if at := p.offset(uint32(i)); at < pack.HeaderSize || at >= p.end {
			return fmt.Errorf("object %s is outside of the pack", p.id(uint32(i)))
		}
	}
	slices.SortFunc(p.order, func(a, b uint32) int { return int(min(max(p.offset(a)-p.offset(b), -1), 1)) })
	p.state = make([]state, p.count)
	return nil
}

// mapFile maps a file into memory.
func mapFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the mapping stays
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, nil
	}
	return syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
}

func (p *packIndex) close() error {
	var err error
	if p.index != nil {
		err = syscall.Munmap(p.index)
		p.index = nil
	}
	return errors.Join(err, p.pack.Close())
}

// find returns the position of an object.
func (p *packIndex) find(id object.ID) (uint32, bool) {
	fan := p.index[len(indexMagic):]
	low, high := 0, int(binary.BigEndian.Uint32(fan[int(id[0])*4:]))
	if id[0] > 0 {
		low = int(binary.BigEndian.Uint32(fan[int(id[0])*4-4:]))
	}
	if low > high || high > p.count {
		return 0, false
	}
	ids := p.index[indexHeadSize:]
	at := low + sort.Search(high-low, func(i int) bool {
		return bytes.Compare(ids[(low+i)*object.IDSize:(low+i+1)*object.IDSize], id[:]) >= 0
	})
	return uint32(at), at < high && p.id(uint32(at)) == id
}

// id returns the object at a position.
func (p *packIndex) id(position uint32) object.ID {
	return object.ID(p.index[indexHeadSize+int(position)*object.IDSize:][:object.IDSize])
}

// offset returns where the entry of an object begins, or -1.
func (p *packIndex) offset(position uint32) int64 {
	rows := p.index[indexHeadSize+p.count*(object.IDSize+4):]
	row := binary.BigEndian.Uint32(rows[position*4:])
	if row&largeOffset == 0 {
		return int64(row)
	}
	large := rows[p.count*4 : len(rows)-2*object.IDSize]
	at := int(row&^largeOffset) * 8
	if at+8 > len(large) {
		return -1
	}
	return int64(binary.BigEndian.Uint64(large[at:]) &^ (1 << 63))
}

// rank returns the rank of the entry that begins at an offset.
func (p *packIndex) rank(offset int64) (int, bool) {
	at := sort.Search(p.count, func(i int) bool { return p.offset(p.order[i]) >= offset })
	return at, at < p.count && p.offset(p.order[at]) == offset
}

// bounds returns where the entry of a rank begins and ends.
func (p *packIndex) bounds(rank int) (begin, end int64) {
	begin, end = p.offset(p.order[rank]), p.end
	if rank+1 < p.count {
		end = p.offset(p.order[rank+1])
	}
	return begin, end
}

// header reads the header of the entry of a rank. packed are the bytes behind it.
func (p *packIndex) header(rank int) (h pack.EntryHeader, packedAt, packedSize int64, err error) {
	begin, end := p.bounds(rank)
	var buf [pack.EntryHeaderSizeMax]byte
	head := buf[:min(int64(len(buf)), end-begin)]
	if _, err := p.pack.ReadAt(head, begin); err != nil {
		return h, 0, 0, fmt.Errorf("read %s.pack: %w", p.path, err)
	}
	h, n, err := pack.ParseEntryHeader(head)
	if err != nil {
		return h, 0, 0, fmt.Errorf("%s.pack at %d: %w", p.path, begin, err)
	}
	return h, begin + int64(n), end - begin - int64(n), nil
}

// content inflates the content of the entry of a rank: an object, or a delta.
func (p *packIndex) content(rank int) (h pack.EntryHeader, data []byte, err error) {
	h, at, size, err := p.header(rank)
	if err != nil {
		return h, nil, err
	}
	packed := make([]byte, size)
	if _, err := p.pack.ReadAt(packed, at); err != nil {
		return h, nil, fmt.Errorf("read %s.pack: %w", p.path, err)
	}
	if data, _, err = pack.Inflate(nil, packed, h.Size); err != nil {
		return h, nil, fmt.Errorf("%s.pack at %d: %w", p.path, at, err)
	}
	return h, data, nil
}
