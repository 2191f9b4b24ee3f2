package ingest

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"sync"

	"packhorse/odb/extsort"
	"packhorse/odb/file"
	"packhorse/pack/object"
)

// linkSet collects the types of the objects of a pack and their links, an item for each ID. At the
// end it shows which objects are missing, and which have another type than they are named as. More
// than countMax items are sorted onto a scratch file, and merged when they are walked.
type linkSet struct {
	seed    maphash.Seed
	files   file.Store
	spilled *extsort.Sorter // nil: all items are in memory

	mu       sync.Mutex // guards the fields below
	countMax int
	items    []linkItem
	slots    []uint32 // open addressing: index in items plus one, or 0
}

// linkItem is the knowledge about an object ID. Its form on scratch files is
//
//	20 ID | 4 ordinal | 4 from | 1 type | 1 wants
type linkItem struct {
	id      object.ID
	ordinal uint32      // of the object in the pack, if is is not 0
	from    uint32      // ordinal of an object that names it, if it is named at all
	is      object.Type // 0: not known to be in the pack
	wants   typeSet     // the types it is named as; 0 for a link without type
}

// typeSet is a set of types, a bit each.
type typeSet uint8

func (s typeSet) has(t object.Type) bool { return s&(1<<t) != 0 }

func newLinkSet(files file.Store, countMax int) *linkSet {
	return &linkSet{countMax: countMax, seed: maphash.MakeSeed(), files: files, slots: make([]uint32, 1<<8)}
}

// bound changes the number of items that are held in memory.
func (s *linkSet) bound(countMax int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countMax = max(countMax, 1)
}

// add merges items into the set.
func (s *linkSet) add(ctx context.Context, items []linkItem) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range items {
		if len(s.items) >= s.countMax {
			if err := s.spill(ctx); err != nil {
				return err
			}
		}
		s.merge(&items[i])
	}
	return nil
}

// merge adds an item to those in memory. mu is held, also in the methods below.
func (s *linkSet) merge(item *linkItem) {
	mask := uint64(len(s.slots) - 1)
	for at := maphash.Bytes(s.seed, item.id[:]) & mask; ; at = (at + 1) & mask {
		slot := s.slots[at]
		if slot == 0 {
			s.items = append(s.items, *item)
			s.slots[at] = uint32(len(s.items))
			break
		}
		if known := &s.items[slot-1]; known.id == item.id {
			known.join(item)
			return
		}
	}
	if len(s.items)*4 > len(s.slots)*3 {
		s.grow()
	}
}

// join adds the knowledge of other about the same ID. Of a repeated object the first entry in the
// pack counts.
func (i *linkItem) join(other *linkItem) {
	if other.is != 0 && (i.is == 0 || other.ordinal < i.ordinal) {
		i.is, i.ordinal = other.is, other.ordinal
	}
	if i.wants == 0 {
		i.from = other.from
	}
	i.wants |= other.wants
}

func (s *linkSet) grow() {
	s.slots = make([]uint32, 2*len(s.slots))
	mask := uint64(len(s.slots) - 1)
	for i := range s.items {
		at := maphash.Bytes(s.seed, s.items[i].id[:]) & mask
		for s.slots[at] != 0 {
			at = (at + 1) & mask
		}
		s.slots[at] = uint32(i + 1)
	}
}

// spill moves the items from memory into the sorter.
func (s *linkSet) spill(ctx context.Context) error {
	if s.spilled == nil {
		s.spilled = extsort.New(s.files, linkItemSize)
	}
	var record [linkItemSize]byte
	for i := range s.items {
		if err := s.spilled.Add(ctx, s.items[i].append(record[:0])); err != nil {
			return fmt.Errorf("spill links: %w", err)
		}
	}
	s.items = s.items[:0]
	clear(s.slots)
	return nil
}

const linkItemSize = object.IDSize + 4 + 4 + 1 + 1

func (i *linkItem) append(dst []byte) []byte {
	dst = append(dst, i.id[:]...)
	dst = binary.BigEndian.AppendUint32(dst, i.ordinal)
	dst = binary.BigEndian.AppendUint32(dst, i.from)
	return append(dst, byte(i.is), byte(i.wants))
}

func decodeLinkItem(b []byte) linkItem {
	rest := b[object.IDSize:]
	return linkItem{
		id:      object.ID(b),
		ordinal: binary.BigEndian.Uint32(rest),
		from:    binary.BigEndian.Uint32(rest[4:]),
		is:      object.Type(rest[8]),
		wants:   typeSet(rest[9]),
	}
}

func sortLinks(items []linkItem) {
	slices.SortFunc(items, func(a, b linkItem) int {
		x, y := binary.BigEndian.Uint64(a.id[:]), binary.BigEndian.Uint64(b.id[:])
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		default:
			return a.id.Compare(b.id)
		}
	})
}

// objects walks the added objects of the pack, in no order; some may come twice.
func (s *linkSet) objects(ctx context.Context) iter.Seq2[linkItem, error] {
	return func(yield func(linkItem, error) bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for item, err := range s.each(ctx) {
			if (err != nil || item.is != 0) && !yield(item, err) {
				return
			}
		}
	}
}

// each walks all items: those that were spilled in order, and not joined.
func (s *linkSet) each(ctx context.Context) iter.Seq2[linkItem, error] {
	return func(yield func(linkItem, error) bool) {
		for i := range s.items {
			if !yield(s.items[i], nil) {
				return
			}
		}
		if s.spilled == nil {
			return
		}
		for record, err := range s.spilled.All(ctx) {
			if err != nil {
				yield(linkItem{}, err)
				return
			}
			if !yield(decodeLinkItem(record), nil) {
				return
			}
		}
	}
}

// idOf returns the ID of the object at an ordinal.
func (s *linkSet) idOf(ctx context.Context, ordinal uint32) (object.ID, error) {
	for item, err := range s.objects(ctx) {
		if err != nil || item.ordinal == ordinal {
			return item.id, err
		}
	}
	return object.ZeroID, nil
}

// sorted walks every ID in order, with all knowledge about it. Nothing may be added afterwards.
func (s *linkSet) sorted(ctx context.Context) iter.Seq2[linkItem, error] {
	return func(yield func(linkItem, error) bool) {
		if err := s.order(ctx); err != nil {
			yield(linkItem{}, err)
			return
		}
		var joined linkItem
		begun := false
		for item, err := range s.each(ctx) {
			switch {
			case err != nil:
				yield(linkItem{}, err)
				return
			case begun && item.id == joined.id:
				joined.join(&item)
				continue
			case begun && !yield(joined, nil):
				return
			}
			joined, begun = item, true
		}
		if begun {
			yield(joined, nil)
		}
	}
}

// order sorts the items, in memory if none was spilled.
func (s *linkSet) order(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spilled != nil {
		return s.spill(ctx)
	}
	s.slots = nil
	sortLinks(s.items)
	return nil
}

// close releases the memory and the scratch file.
func (s *linkSet) close() error {
	s.items, s.slots = nil, nil
	if s.spilled == nil {
		return nil
	}
	return s.spilled.Close()
}

// linkNotes are the links that one examiner has found and not yet added to the set.
type linkNotes struct {
	set     *linkSet
	pending []linkItem
	recent  []recentLink // by the first bytes of the ID; the length is a power of two
}

// recentLink is a link that was noted before. Successive versions of a tree name mostly the same
// objects.
type recentLink struct {
	id    object.ID
	wants typeSet
}

const (
	recentMin, recentMax = 1 << 7, 1 << 13
	linksPendingMax      = 1024
)

// newRecentLinks returns room for the links of about count objects.
func newRecentLinks(count int) []recentLink {
	const perObject = 4
	size := recentMin
	for size < min(count*perObject, recentMax) {
		size *= 2
	}
	return make([]recentLink, size)
}

func (n *linkNotes) recentOf(id *object.ID) *recentLink {
	return &n.recent[int(binary.LittleEndian.Uint16(id[:]))&(len(n.recent)-1)]
}

// link notes that the object at ordinal from names id as a want.
func (n *linkNotes) link(ctx context.Context, id object.ID, want object.Type, from uint32) error {
	wants := typeSet(1 << want)
	recent := n.recentOf(&id)
	if recent.id == id && recent.wants&wants != 0 {
		return nil
	}
	*recent = recentLink{id: id, wants: wants}
	return n.add(ctx, linkItem{id: id, from: from, wants: wants})
}

// assume marks a link as noted: the object that names it is stored, and the pool is closed.
func (n *linkNotes) assume(id object.ID, want object.Type) {
	*n.recentOf(&id) = recentLink{id: id, wants: 1 << want}
}

// object notes that id is in the pack.
func (n *linkNotes) object(ctx context.Context, id object.ID, t object.Type, ordinal uint32) error {
	return n.add(ctx, linkItem{id: id, ordinal: ordinal, is: t})
}

func (n *linkNotes) add(ctx context.Context, item linkItem) error {
	n.pending = append(n.pending, item)
	if len(n.pending) < linksPendingMax {
		return nil
	}
	return n.flush(ctx)
}

func (n *linkNotes) flush(ctx context.Context) error {
	err := n.set.add(ctx, n.pending)
	n.pending = n.pending[:0]
	return err
}
