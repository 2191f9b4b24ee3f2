package packgen

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"packhorse/odb"
	"packhorse/odb/revwalk"
	"packhorse/odb/segment"
	"packhorse/odb/traffic"
	"packhorse/pack/object"
)

// handle is an object number of an inventory in eight bytes: the place of its layer, and its number
// there. A segment numbers its objects by ordinal. All unpacked objects count as one more layer, in
// the order of their first lookup.
type handle uint64

func newHandle(layer int, number uint32) handle { return handle(layer)<<32 | handle(number) }

func (h handle) layer() int     { return int(h >> 32) }
func (h handle) number() uint32 { return uint32(h) }

// inventory assigns handles to the objects of a view, so that sets of them are bitmaps. A duplicate
// has one handle: that of the layer which the view consults first. The inventory keeps the segments
// of the view open and may be used concurrently.
type inventory struct {
	view     *odb.View
	layers   []*odb.SegmentLayer
	segments []segment.Segment // of layers, acquired
	bitmaps  *reachBitmaps     // nil: none; used by one goroutine
	pace     *traffic.Pacer    // makes long work on it rest; nil: no rests

	mu       sync.Mutex      // guards the fields below
	unpacked revwalk.IDTable // objects in no segment
	places   []unpackedPlace // of these
}

// unpackedPlace is where an unpacked object was found.
type unpackedPlace struct {
	at   odb.Location // without its value
	size uint32       // in bytes, as it is stored
}

func newInventory(ctx context.Context, v *odb.View) (*inventory, error) {
	inv := &inventory{view: v}
	for _, l := range v.Segments() {
		g, err := l.Acquire(ctx)
		if err != nil {
			inv.close()
			return nil, err
		}
		inv.layers = append(inv.layers, l)
		inv.segments = append(inv.segments, g)
	}
	return inv, nil
}

// useBitmaps opens the bitmaps of the pool, if there are any.
func (inv *inventory) useBitmaps(ctx context.Context) error {
	var err error
	inv.bitmaps, err = openBitmaps(ctx, inv)
	return err
}

func (inv *inventory) close() {
	if inv.bitmaps != nil {
		inv.bitmaps.close()
		inv.bitmaps = nil
	}
	for i, g := range inv.segments {
		inv.layers[i].Release(g)
	}
	inv.layers, inv.segments = nil, nil
}

// unpackedLayer is the place of the layer of unpacked objects.
func (inv *inventory) unpackedLayer() int { return len(inv.segments) }

// linked returns the handle of an object that a readable object names, which makes it readable,
// too. Errors: [odb.ErrNotFound].
func (inv *inventory) linked(ctx context.Context, id object.ID) (handle, error) {
	if inv.view.IsQuarantine() { // the view does not consult segments first
		return inv.locate(ctx, id)
	}
	if h, ok, err := inv.packed(ctx, id); ok || err != nil {
		return h, err
	}
	at, err := inv.view.FindUnpacked(ctx, id)
	if err != nil {
		return 0, err
	}
	return inv.unpackedHandle(id, &at), nil
}

// assigned returns the handle of an object, readable or not; false if it has none yet, so that it
// is in no set.
func (inv *inventory) assigned(ctx context.Context, id object.ID) (handle, bool, error) {
	inv.mu.Lock()
	n := inv.unpacked.Find(id)
	inv.mu.Unlock()
	if n >= 0 {
		return newHandle(inv.unpackedLayer(), uint32(n)), true, nil
	}
	return inv.packed(ctx, id)
}

// packed returns the handle of an object in a segment, false if there is none.
func (inv *inventory) packed(ctx context.Context, id object.ID) (handle, bool, error) {
	for i, g := range inv.segments {
		if ordinal, ok, err := g.Lookup(ctx, id); ok || err != nil {
			return newHandle(i, ordinal), ok, err
		}
	}
	return 0, false, nil
}

// locate returns the handle of id if it is readable. Errors: [odb.ErrNotFound].
func (inv *inventory) locate(ctx context.Context, id object.ID) (handle, error) {
	h, _, err := inv.find(ctx, id)
	return h, err
}

// find returns the handle of id, if it is readable, and its location. Errors: [odb.ErrNotFound].
func (inv *inventory) find(ctx context.Context, id object.ID) (handle, odb.Location, error) {
	at, err := inv.view.Find(ctx, id)
	if err != nil {
		return 0, at, err
	}
	if l, ordinal, ok := at.Segment(); ok {
		for i := range inv.layers {
			if inv.layers[i] == l {
				return newHandle(i, ordinal), at, nil
			}
		}
	}
	return inv.unpackedHandle(id, &at), at, nil
}

// unpackedHandle returns the handle of the unpacked object id, which was found at a location.
func (inv *inventory) unpackedHandle(id object.ID, at *odb.Location) handle {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	n, fresh := inv.unpacked.Number(id)
	if fresh {
		inv.places = append(inv.places, unpackedPlace{at.WithoutValue(), uint32(at.StoredSize())})
	}
	return newHandle(inv.unpackedLayer(), uint32(n))
}

// id returns the ID of the object that h names.
func (inv *inventory) id(ctx context.Context, h handle) (object.ID, error) {
	if h.layer() < len(inv.segments) {
		return inv.segments[h.layer()].ID(ctx, h.number())
	}
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.unpacked.ID(h.number()), nil
}

// unpackedCount returns the number of unpacked objects that have handles.
func (inv *inventory) unpackedCount() int {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return len(inv.places)
}

// unpackedEntry returns the stored form of an unpacked object.
func (inv *inventory) unpackedEntry(ctx context.Context, number uint32) (odb.StoredEntry, error) {
	inv.mu.Lock()
	at := inv.places[number].at
	inv.mu.Unlock()
	return at.Entry(ctx)
}

// read returns the object that h names, shared and read-only. Errors: those of [odb.View.Read].
func (inv *inventory) read(ctx context.Context, h handle) (object.Type, []byte, error) {
	if h.layer() >= len(inv.segments) {
		return inv.readUnpacked(ctx, h.number())
	}
	t, data, err := inv.view.ReadAt(ctx, inv.layers[h.layer()].At(h.number()))
	if err != nil {
		return 0, nil, fmt.Errorf("read object %d of layer %s: %w", h.number(), inv.layers[h.layer()].ID, err)
	}
	return t, data, nil
}

// readUnpacked is read of an unpacked object. It asks the layer where the object was found, unless
// that may have changed since: a quarantine moves its objects, and another process may have swept
// the layer.
func (inv *inventory) readUnpacked(ctx context.Context, number uint32) (object.Type, []byte, error) {
	inv.mu.Lock()
	id, at := inv.unpacked.ID(number), inv.places[number].at
	inv.mu.Unlock()
	if !inv.view.IsQuarantine() {
		t, data, err := inv.view.ReadAt(ctx, at)
		if err == nil {
			return t, data, nil
		}
		if !errors.Is(err, odb.ErrGone) {
			return 0, nil, fmt.Errorf("read object %s: %w", id, err)
		}
	}
	return inv.view.Read(ctx, id)
}

// readBase is read for an object that is likely to be read again soon: it caches blobs, too, which
// read does only for delta bases.
func (inv *inventory) readBase(ctx context.Context, h handle) (object.Type, []byte, error) {
	t, data, err := inv.read(ctx, h)
	if err != nil || t != object.TypeBlob {
		return t, data, err
	}
	if h.layer() < len(inv.segments) {
		inv.view.KeepBase(inv.layers[h.layer()].At(h.number()), t, data)
	}
	return t, data, nil
}

// stat returns the type and size of the object that h names.
func (inv *inventory) stat(ctx context.Context, h handle) (odb.Info, error) {
	if h.layer() < len(inv.segments) {
		r, err := inv.segments[h.layer()].Record(ctx, h.number())
		return odb.Info{Type: r.Type, Size: r.Size}, err
	}
	id, err := inv.id(ctx, h)
	if err != nil {
		return odb.Info{}, err
	}
	return inv.view.Stat(ctx, id)
}

// objectSet is a set of objects of one inventory, a bit each. The zero set is empty. It is for one
// goroutine.
type objectSet struct {
	words [][]uint64
	inv   *inventory
}

func (inv *inventory) newSet() objectSet {
	return objectSet{words: make([][]uint64, len(inv.segments)+1), inv: inv}
}

// add adds h to the set and reports whether it is new there.
func (s *objectSet) add(h handle) bool {
	words := s.reach(h)
	mask := uint64(1) << (h.number() & 63)
	if *words&mask != 0 {
		return false
	}
	*words |= mask
	return true
}

// reach returns the word of h, and allocates it if necessary.
func (s *objectSet) reach(h handle) *uint64 {
	words := s.words[h.layer()]
	if int(h.number()>>6) >= len(words) {
		count := int(h.number())/64 + 1
		if h.layer() < len(s.inv.segments) {
			count = (s.inv.segments[h.layer()].Count + 63) / 64
		}
		words = append(words, make([]uint64, count-len(words))...)
		s.words[h.layer()] = words
	}
	return &words[h.number()>>6]
}

// addAll adds all objects of a segment to the set.
func (s *objectSet) addAll(segment int) {
	count := s.inv.segments[segment].Count
	words := make([]uint64, (count+63)/64)
	for i := range words {
		words[i] = ^uint64(0)
	}
	if rest := count % 64; rest != 0 {
		words[len(words)-1] = 1<<rest - 1
	}
	s.words[segment] = words
}

func (s *objectSet) remove(h handle) {
	if s.has(h) {
		s.words[h.layer()][h.number()>>6] &^= 1 << (h.number() & 63)
	}
}

func (s *objectSet) has(h handle) bool {
	words := s.words[h.layer()]
	n := h.number()
	return int(n>>6) < len(words) && words[n>>6]&(1<<(n&63)) != 0
}

// count returns the number of objects of one layer in the set.
func (s *objectSet) count(layer int) int {
	n := 0
	for _, word := range s.words[layer] {
		n += bits.OnesCount64(word)
	}
	return n
}

// unite adds the objects of other.
func (s *objectSet) unite(other *objectSet) {
	for layer, words := range other.words {
		if len(words) > len(s.words[layer]) {
			s.words[layer] = append(s.words[layer], make([]uint64, len(words)-len(s.words[layer]))...)
		}
		for i, word := range words {
			s.words[layer][i] |= word
		}
	}
}

// subtract removes the objects of other.
func (s *objectSet) subtract(other *objectSet) {
	for layer, words := range s.words {
		for i, word := range other.words[layer][:min(len(words), len(other.words[layer]))] {
			words[i] &^= word
		}
	}
}

// each calls visit with the numbers of a layer's objects in the set, in order, until visit returns
// an error.
func (s *objectSet) each(layer int, visit func(number uint32) error) error {
	for i, word := range s.words[layer] {
		for ; word != 0; word &= word - 1 {
			if err := visit(uint32(i*64 + bits.TrailingZeros64(word))); err != nil {
				return err
			}
		}
	}
	return nil
}
