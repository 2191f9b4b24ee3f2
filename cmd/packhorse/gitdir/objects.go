package gitdir

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"packhorse/odb/lru"
	"packhorse/pack"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// contentsBytes bounds the objects of a repository that are kept in memory: bases of deltas, which
// the next objects need again.
const contentsBytes = 32 << 20

// contents are objects by where they lie.
type contents = lru.Cache[place, whole]

func newContents() contents { return lru.New[place, whole](contentsBytes, contentsBytes/4) }

// place is an entry of a pack.
type place struct {
	pack *packIndex
	rank int
}

// whole is an object. Its data is shared, and only read.
type whole struct {
	kind object.Type
	data []byte
}

// Has reports whether the repository has an object.
func (r *Repository) Has(id object.ID) bool {
	if p, _ := r.find(id); p != nil {
		return true
	}
	_, ok := r.loosePath(id)
	return ok
}

// find returns the pack that has an object, and its position there, or nil.
func (r *Repository) find(id object.ID) (*packIndex, uint32) {
	for _, p := range r.packs {
		if position, ok := p.find(id); ok {
			return p, position
		}
	}
	return nil, 0
}

// loosePath returns the file of a loose object.
func (r *Repository) loosePath(id object.ID) (string, bool) {
	digits := id.String()
	for _, dir := range r.dirs {
		path := filepath.Join(dir, digits[:2], digits[2:])
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
	}
	return "", false
}

// read returns an object, which is shared. Errors: [ErrMissing], and those of damaged files.
func (r *Repository) read(id object.ID) (whole, error) {
	p, position := r.find(id)
	if p == nil {
		return r.readLoose(id)
	}
	rank, _ := p.rank(p.offset(position))
	return r.readPacked(place{p, rank})
}

// deltasMax bounds the length of a chain of deltas.
const deltasMax = 1 << 16

// readPacked reads an entry, and the bases that it builds on.
func (r *Repository) readPacked(at place) (whole, error) {
	type step struct {
		place
		delta []byte
	}
	var steps []step
	var base whole
	for {
		if known, ok := r.cache.Get(at); ok {
			base = known
			break
		}
		h, data, err := at.pack.content(at.rank)
		if err != nil {
			return whole{}, err
		}
		if !h.Kind.IsDelta() {
			base = whole{h.Kind.Type(), data}
			r.cache.Put(at, base, int64(cap(data)))
			break
		}
		if steps = append(steps, step{at, data}); len(steps) > deltasMax {
			return whole{}, fmt.Errorf("%s.pack: a chain of more than %d deltas", at.pack.path, deltasMax)
		}
		next, ok, err := r.base(at, h)
		if err != nil {
			return whole{}, err
		}
		if !ok { // beside the pack, which should not be
			if base, err = r.read(h.BaseID); err != nil {
				return whole{}, err
			}
			break
		}
		at = next
	}
	for _, step := range slices.Backward(steps) {
		data, err := delta.Apply(nil, base.data, step.delta, pack.ObjectSizeMax)
		if err != nil {
			return whole{}, fmt.Errorf("%s.pack: %w", step.pack.path, err)
		}
		base.data = data
		r.cache.Put(step.place, base, int64(cap(data)))
	}
	return base, nil
}

// base returns the entry that a delta builds on, or false if it lies in no pack with it.
func (r *Repository) base(at place, h pack.EntryHeader) (place, bool, error) {
	begin, _ := at.pack.bounds(at.rank)
	offset := begin - h.BaseDistance
	if h.Kind == pack.KindRefDelta {
		position, ok := at.pack.find(h.BaseID)
		if !ok {
			return place{}, false, nil
		}
		offset = at.pack.offset(position)
	}
	rank, ok := at.pack.rank(offset)
	if !ok || rank == at.rank {
		return place{}, false, fmt.Errorf("%s.pack: the delta at %d has no base", at.pack.path, begin)
	}
	return place{at.pack, rank}, true, nil
}

// readLoose reads an object from a file of its own:
//
//	zlib stream of: type | 0x20 | size in digits | 0x00 | content
func (r *Repository) readLoose(id object.ID) (whole, error) {
	path, ok := r.loosePath(id)
	if !ok {
		return whole{}, fmt.Errorf("%w: %s", ErrMissing, id)
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return whole{}, fmt.Errorf("%w: %s", ErrMissing, id)
	}
	if err != nil {
		return whole{}, err
	}
	defer func() { _ = file.Close() }()
	stream := pack.NewInflater(file)
	defer func() { _ = stream.Close() }()
	from := bufio.NewReader(stream)
	head, err := from.ReadSlice(0)
	if err != nil {
		return whole{}, fmt.Errorf("read %s: %w", path, err)
	}
	name, digits, _ := bytes.Cut(head[:len(head)-1], []byte(" "))
	kind, err := object.ParseType(string(name))
	if err != nil {
		return whole{}, fmt.Errorf("read %s: %w", path, err)
	}
	size, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || size < 0 || size > pack.ObjectSizeMax {
		return whole{}, fmt.Errorf("read %s: a size of %.20q", path, digits)
	}
	data, err := io.ReadAll(io.LimitReader(from, size+1))
	if err != nil || int64(len(data)) != size {
		return whole{}, fmt.Errorf("read %s: %w", path, errors.Join(err, fmt.Errorf("%d bytes in place of %d", len(data), size)))
	}
	return whole{kind, data}, nil
}
