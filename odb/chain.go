package odb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"packhorse/odb/fair"
	"packhorse/odb/segment"
	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// Read returns a whole object, as a slice that is shared and read-only. Errors: [ErrNotFound];
// [ErrTooLarge] above 32 MiB, which [View.Open] can read; [ErrCorrupt].
func (v *View) Read(ctx context.Context, id object.ID) (object.Type, []byte, error) {
	return v.ReadInto(ctx, id, nil)
}

// ReadInto is Read with a buffer that the content may lie in, which grows if need be: the content
// is valid until the buffer is used again. The caller owns the buffer; nil means none.
func (v *View) ReadInto(ctx context.Context, id object.ID, buffer *[]byte) (object.Type, []byte, error) {
	if hit, ok := v.cachedHot(id); ok {
		return hit.Kind, hit.Data, nil
	}
	t, data, err := v.readFound(ctx, id, buffer)
	if err != nil {
		next, err := v.renewed(ctx, err)
		if next == nil {
			return 0, nil, err
		}
		return next.ReadInto(ctx, id, buffer)
	}
	return t, data, nil
}

func (v *View) readFound(ctx context.Context, id object.ID, buffer *[]byte) (object.Type, []byte, error) {
	at, err := v.Find(ctx, id)
	if err != nil {
		return 0, nil, err
	}
	t, data, err := v.readAt(ctx, at, buffer)
	if err != nil {
		return 0, nil, fmt.Errorf("read object %s: %w", id, err)
	}
	return t, data, nil
}

// ReadTree is Read for an ID that names a tree. The empty tree need not be stored, and the zero ID
// means no folder: both have no content. Errors: those of Read; [*TypeError].
func (v *View) ReadTree(ctx context.Context, id object.ID) ([]byte, error) {
	if id.IsZero() || id == object.EmptyTreeID {
		return nil, nil
	}
	t, data, err := v.Read(ctx, id)
	if err == nil && t != object.TypeTree {
		err = &TypeError{Object: id, Type: t, Want: object.TypeTree}
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// cachedHot looks for id among the cached objects of the hot layers, before it consults any index:
// these are the objects that every commit reads.
func (v *View) cachedHot(id object.ID) (segment.CacheEntry, bool) {
	for _, l := range v.storedLayers() {
		if hot, ok := l.(*hotLayer); ok && !v.IsBorrowed(l) {
			if hit, ok := v.store.env.Cache.Get(hotCacheKey(hot.id, id)); ok {
				return hit, true
			}
		}
	}
	return segment.CacheEntry{}, false
}

// chainLink is a delta on the way from an object down to the whole base that it is built on.
type chainLink struct {
	at Location
	Info
}

// bottom is the base of a delta chain: an object in memory, or the location of a whole entry.
type bottom struct {
	at Location
	Info
	inMemory bool
	data     []byte
}

// valuesKept is the number of links of a chain that keep their hot value. Longer chains read values
// again rather than hold them.
const valuesKept = 64

// ReadAt returns the object at a location, at most segment.WholeMax bytes long.
//
// It walks the chain of deltas down to a whole or cached base, which may lie in another layer, and
// applies them upwards one by one. The length of a chain is bounded, so a cycle ends as corruption.
// The objects built on the way are cached: the next version of a file has the same base.
func (v *View) ReadAt(ctx context.Context, at Location) (object.Type, []byte, error) {
	return v.readAt(ctx, at, nil)
}

func (v *View) readAt(ctx context.Context, at Location, buffer *[]byte) (object.Type, []byte, error) {
	t, data, err := v.readChain(ctx, at, buffer)
	if errors.Is(err, segment.ErrLargeChain) {
		return v.readSpooled(ctx, at)
	}
	return t, data, err
}

func (v *View) readChain(
	ctx context.Context, at Location, buffer *[]byte,
) (t object.Type, data []byte, err error) {
	chain, base, err := v.descend(ctx, at, segment.WholeMax)
	if err != nil {
		return 0, nil, err
	}
	largest := largestOf(chain, &base)
	if largest < largeFrom {
		return v.build(ctx, chain, &base, buffer)
	}
	if err := fair.Need(ctx, largeCosts*largest); err != nil {
		return 0, nil, err
	}
	err = fair.Do(ctx, func(ctx context.Context) error {
		if hit, ok := v.recall(&at); ok { // another request may have read it during the waits
			t, data = hit.Kind, hit.Data
			return nil
		}
		t, data, err = v.build(ctx, chain, &base, buffer)
		return err
	})
	return t, data, err
}

// build returns the object at the top of a chain. A blob there is not kept, and may lie in the
// buffer.
func (v *View) build(
	ctx context.Context, chain []chainLink, base *bottom, buffer *[]byte,
) (_ object.Type, _ []byte, err error) {
	if base.Type != object.TypeBlob {
		buffer = nil
	}
	data := base.data
	if !base.inMemory {
		var room *[]byte
		if len(chain) == 0 {
			room = buffer
		}
		if data, err = base.at.layer.content(ctx, base.at, room); err != nil {
			return 0, nil, err
		}
		v.keep(&base.at, segment.CacheEntry{Kind: base.Type, Data: data}, len(chain) > 0)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		var room *[]byte
		if i == 0 {
			room = buffer
		}
		if data, err = v.applyLink(ctx, &chain[i], data, room); err != nil {
			return 0, nil, err
		}
		v.keep(&chain[i].at, segment.CacheEntry{Kind: base.Type, Data: data}, i > 0)
	}
	return base.Type, data, nil
}

// Objects of largeFrom bytes or more are read in a turn at the processors. Memory is requested for
// them before: together with their sources and results they hold largeCosts times their size.
const (
	largeFrom  = mebibyte
	largeCosts = 4
)

// largestOf returns the size of the largest object of a chain.
func largestOf(chain []chainLink, base *bottom) int64 {
	largest := base.Size
	for i := range chain {
		largest = max(largest, chain[i].Size)
	}
	return largest
}

// descend returns the deltas between the object at a location and the base at the bottom, nearest
// first, and that base. Errors: segment.ErrLargeChain when an object or a delta on the way has more
// than sizeMax bytes.
func (v *View) descend(ctx context.Context, at Location, sizeMax int64) ([]chainLink, bottom, error) {
	var chain []chainLink
	for {
		if hit, ok := v.recall(&at); ok {
			info := Info{Type: hit.Kind, Size: int64(len(hit.Data))}
			return chain, bottom{at: at, Info: info, inMemory: true, data: hit.Data}, v.checkTypes(chain, hit.Kind)
		}
		step, err := at.layer.step(ctx, at)
		if err != nil {
			return nil, bottom{}, err
		}
		if max(step.Size, step.ContentSize) > sizeMax {
			return nil, bottom{}, segment.ErrLargeChain
		}
		if !step.Delta {
			return chain, bottom{at: at, Info: step.Info}, v.checkTypes(chain, step.Type)
		}
		if len(chain) == DepthMax {
			return nil, bottom{}, v.store.damage.Corrupt(at.layer.layerID(), at.id, "more than %d deltas, or a cycle", DepthMax)
		}
		base, err := v.baseOf(ctx, &at, &step)
		if err != nil {
			return nil, bottom{}, err
		}
		if len(chain) >= valuesKept {
			at.value = nil
		}
		chain = append(chain, chainLink{at: at, Info: step.Info})
		at = base
	}
}

// checkTypes verifies that a delta has the type of its base: it has none of its own.
func (v *View) checkTypes(chain []chainLink, t object.Type) error {
	for i := range chain {
		if link := &chain[i]; link.Type != t {
			return v.store.damage.Corrupt(link.at.layer.layerID(), link.at.id, "a %s is a delta against a %s", link.Type, t)
		}
	}
	return nil
}

// baseOf returns the location of the base of the delta at a location. The base of a stored object
// is stored: a quarantined duplicate of it, which may be a delta against that very object, does not
// count. For the same reason older hot layers go before newer ones: a fork stores a borrowed object
// that it may not read again when the object is pushed, perhaps as a delta against an object that
// is a delta against the borrowed duplicate. The base of a delta is as old as the delta or older,
// so chains that take the oldest duplicate end.
func (v *View) baseOf(ctx context.Context, at *Location, s *step) (Location, error) {
	if s.BaseOrdinal != segment.NoOrdinal {
		return Location{layer: at.layer, ordinal: s.BaseOrdinal}, nil
	}
	base, ok, err := v.locateFrom(ctx, at.layer, s.Base)
	if err != nil {
		return Location{}, err
	}
	if !ok {
		return Location{}, v.store.damage.Corrupt(at.layer.layerID(), at.id, "its delta base %s is missing", s.Base)
	}
	return base, nil
}

func (v *View) locateFrom(ctx context.Context, from layer, id object.ID) (Location, bool, error) {
	switch from.(type) {
	case *hotLayer, *SegmentLayer:
		return searchBase(ctx, v.storedLayers(), id)
	default:
		return v.locate(ctx, id)
	}
}

// searchBase is searchIn with the hot layers, which stand behind the segments, from the oldest to
// the newest.
func searchBase(ctx context.Context, layers []layer, id object.ID) (Location, bool, error) {
	first := firstHot(layers)
	if at, ok, err := searchIn(ctx, layers[:first], id); ok || err != nil {
		return at, ok, err
	}
	for _, l := range slices.Backward(layers[first:]) {
		if at, ok, err := findIn(ctx, l, id); ok || err != nil {
			return at, ok, err
		}
	}
	return Location{}, false, nil
}

// programs keep the memory of deltas, which nobody has when their objects are built.
var programs = sync.Pool{New: func() any { return new([]byte) }}

// programHeldMax bounds the memory of a delta that is held for the next one.
const programHeldMax = 256 << 10

// applyLink returns the object that the delta at a link builds from base, in the buffer if there is
// one.
func (v *View) applyLink(ctx context.Context, link *chainLink, base []byte, buffer *[]byte) ([]byte, error) {
	program := programs.Get().(*[]byte)
	defer func() {
		if cap(*program) <= programHeldMax {
			programs.Put(program)
		}
	}()
	steps, err := link.at.layer.content(ctx, link.at, program)
	if err != nil {
		return nil, err
	}
	var room []byte
	if buffer != nil {
		room = (*buffer)[:0]
	}
	built, err := delta.Apply(room, base, steps, link.Size)
	if err == nil && int64(len(built)) != link.Size {
		err = fmt.Errorf("%w: delta builds %d bytes instead of %d", segment.ErrFormat, len(built), link.Size)
	}
	if err != nil {
		return nil, v.store.damaged(link.at.layer.layerID(), link.at.id, err)
	}
	if buffer != nil {
		*buffer = built
	}
	return built, nil
}

// recall returns the object at a location if it is in memory.
func (v *View) recall(at *Location) (segment.CacheEntry, bool) {
	if memory, ok := at.layer.(*memoryLayer); ok {
		return memory.recall(at.id)
	}
	if key, ok := at.key(); ok {
		hit, ok := v.store.env.Cache.Get(key)
		if !ok && v.own != nil {
			hit, ok = v.own.Get(key)
		}
		return hit, ok
	}
	return segment.CacheEntry{}, false
}

// keep caches an object built at a location: delta bases, trees, commits and tags, but not
// requested blobs, which are read once.
func (v *View) keep(at *Location, built segment.CacheEntry, isBase bool) {
	if built.Kind == object.TypeBlob && !isBase {
		return
	}
	key, ok := at.key()
	switch {
	case !ok:
	case v.own != nil:
		v.own.Put(key, built, built.Weight())
	default:
		v.store.env.Cache.Set(key, built)
	}
}

// Deflated returns the deflated form of a readable object if [View.KeepDeflated] has cached it,
// shared and read-only.
func (v *View) Deflated(id object.ID) (packed []byte, ok bool) {
	return v.derived(segment.DeflatedKey(id))
}

// KeepDeflated caches the deflated form of an object that is stored in another form, as a delta or
// compressed by zstd: forks of a repository, and clones of few commits, send the same trees again
// and again. All pools share it. packed is kept.
func (v *View) KeepDeflated(id object.ID, packed []byte) {
	v.keepDerived(segment.DeflatedKey(id), packed)
}

// Folders returns the entries of a tree that are folders, as a tree, if [View.KeepFolders] has
// cached them; shared and read-only.
func (v *View) Folders(tree object.ID) (folders []byte, ok bool) {
	return v.derived(segment.FoldersKey(tree))
}

// KeepFolders caches the folders in a tree: a walk that asks for no files reads nothing else of it,
// and most trees have none. All pools share them. folders is kept.
func (v *View) KeepFolders(tree object.ID, folders []byte) {
	v.keepDerived(segment.FoldersKey(tree), folders)
}

// derived returns what a view of requests has cached of an object, wherever that is stored.
func (v *View) derived(key segment.CacheKey) (data []byte, ok bool) {
	if v.own != nil {
		return nil, false
	}
	hit, ok := v.store.env.Cache.Get(key)
	return hit.Data, ok
}

func (v *View) keepDerived(key segment.CacheKey, data []byte) {
	if v.own == nil {
		v.store.env.Cache.Set(key, segment.CacheEntry{Data: data})
	}
}

// KeepBase caches the object at a location, which is likely to be read again soon as the base of
// deltas.
func (v *View) KeepBase(at Location, t object.Type, data []byte) {
	v.keep(&at, segment.CacheEntry{Kind: t, Data: data}, true)
}

// DeltaDepth counts the deltas between an object and the whole base below it, up to depthMax.
// Errors: [ErrNotFound], [ErrCorrupt].
func (v *View) DeltaDepth(ctx context.Context, id object.ID, depthMax int) (int, error) {
	at, err := v.Find(ctx, id)
	if err != nil {
		return 0, err
	}
	return v.depthAt(ctx, at, depthMax)
}

// depthAt is DeltaDepth of the object at a location.
func (v *View) depthAt(ctx context.Context, at Location, depthMax int) (int, error) {
	for depth := 0; ; depth++ {
		step, err := at.layer.step(ctx, at)
		if err != nil || !step.Delta || depth == depthMax {
			return depth, err
		}
		if at, err = v.baseOf(ctx, &at, &step); err != nil {
			return 0, err
		}
	}
}
