package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// ErrMoved says that layers to replace have left the manifest: another server has rewritten them.
var ErrMoved = errors.New("odb: another server has rewritten the layers")

// Rewrite replaces layers of a pool by one segment with their objects, or with some of them, while
// the pool is read and written. Maintenance decides on the layers and makes the segment.
//
// The order of calls is: [Store.BeginRewrite]; [Rewrite.OwnLayers] and [Rewrite.Choose];
// [Rewrite.Put] unless no object is left; then [Rewrite.Commit] when every object stays, or
// [Rewrite.Look] and [Rewrite.Stage] when some do not; Close. A Rewrite belongs to one goroutine.
type Rewrite struct {
	store  *Store
	view   *View
	mark   *rewriteMark // keeps forks from merging the pool's layers
	chosen map[segment.LayerID]bool
	q      *Quarantine // the new segment; nil: no object of the layers is left

	checked map[object.ID]struct{}       // objects that are hot, whose links are held
	layers  map[segment.LayerID]struct{} // whose links are held
	held    map[object.ID]struct{}       // named objects that have been found
}

// OwnLayer is a layer that a rewrite may replace.
type OwnLayer struct {
	ID    segment.LayerID
	Hot   bool
	Count int // of objects
	// Provisional says that the layer is delta-incomplete, Refused that an object is stored as a
	// delta that git refuses, Shared that another pool uses the layer, too.
	Provisional, Refused, Shared bool
}

// BeginRewrite freezes a pool's hot layer and pins its layers. It calls frozen, if not nil, in
// between: later writes go to no layer that may be replaced. Errors: [ErrNoPool], [ErrCorrupt], and
// that of frozen.
func (s *Store) BeginRewrite(
	ctx context.Context, pool PoolID, frozen func(ctx context.Context) error,
) (*Rewrite, error) {
	if err := s.freeze(ctx, pool); err != nil {
		return nil, err
	}
	r := &Rewrite{
		store: s, mark: s.rewriting.begin(pool), chosen: make(map[segment.LayerID]bool),
		checked: make(map[object.ID]struct{}), layers: make(map[segment.LayerID]struct{}), held: make(map[object.ID]struct{}),
	}
	var err error
	if frozen != nil {
		err = frozen(ctx)
	}
	if err == nil {
		r.view, err = s.View(ctx, pool)
	}
	if err != nil {
		r.mark.end()
		return nil, err
	}
	r.mark.narrow(&r.view.manifest)
	r.view.Aside()
	return r, nil
}

// Close discards an uncommitted rewrite.
func (r *Rewrite) Close() error {
	var err error
	if r.q != nil {
		err = r.q.Close()
	}
	r.mark.end()
	return errors.Join(err, r.view.Close())
}

// View returns a view of the pool just after its hot layer was frozen. It ends with the rewrite.
func (r *Rewrite) View() *View { return r.view }

// ClaimBorrowed computes the visibility set of the pool if it is now the only user of one of its
// borrowed layers. Layers of which it may read all objects become its own. A failure is logged.
func (r *Rewrite) ClaimBorrowed(ctx context.Context) { r.store.claimBorrowed(ctx, r.view) }

// OwnLayers returns the layers that may be replaced: frozen layers that no other pool uses, and
// that are not borrowed. With shared it adds those that others use and that were made for this
// pool: IDs sort by creation, and borrowed layers are older than the fork.
func (r *Rewrite) OwnLayers(ctx context.Context, shared bool) ([]OwnLayer, error) {
	m := &r.view.manifest
	last, _ := m.hot()
	var own []OwnLayer
	for _, l := range m.layers {
		if _, borrowed := l.borrowed(); borrowed || l.id == last {
			continue
		}
		isShared, err := r.store.IsShared(ctx, r.view.pool, l.id)
		if err != nil {
			return nil, err
		}
		if isShared && (!shared || bytes.Compare(l.id[:], r.view.pool[:]) < 0) {
			continue
		}
		measured := OwnLayer{ID: l.id, Hot: l.kind == segment.KindHot, Shared: isShared}
		if err := r.measure(ctx, &measured); err != nil {
			return nil, err
		}
		own = append(own, measured)
	}
	return own, nil
}

func (r *Rewrite) measure(ctx context.Context, l *OwnLayer) error {
	if l.Hot {
		for _, err := range r.HotObjects(ctx, l.ID) {
			if err != nil {
				return err
			}
			l.Count++
		}
		return nil
	}
	for _, other := range r.view.Segments() {
		if other.ID != l.ID {
			continue
		}
		g, err := other.Acquire(ctx)
		if err != nil {
			return err
		}
		defer other.Release(g)
		l.Count, l.Provisional = g.Count, g.IsProvisional()
		l.Refused, err = g.HasRefusedDelta(ctx)
		return err
	}
	return fmt.Errorf("odb: layer %s is not in its view", l.ID)
}

// HotObjects walks the objects of a hot layer, by ID.
func (r *Rewrite) HotObjects(ctx context.Context, layer segment.LayerID) iter.Seq2[object.ID, error] {
	return func(yield func(object.ID, error) bool) {
		for pair, err := range r.store.keys.Scan(ctx, hot.Range(hot.TableObject, layer)) {
			if err != nil {
				yield(object.ZeroID, err)
				return
			}
			id, ok := hot.IDOfKey(pair.Key)
			if ok && !yield(id, nil) { // fsck reports others
				return
			}
		}
	}
}

// NamedElsewhere calls visit with the links of the objects of all layers except own, delta bases
// included. An ID may come more than once.
func (r *Rewrite) NamedElsewhere(ctx context.Context, own []OwnLayer, visit func(id object.ID) error) error {
	for _, l := range r.view.manifest.layers {
		if slices.ContainsFunc(own, func(o OwnLayer) bool { return o.ID == l.id }) {
			continue
		}
		if err := r.view.eachNamed(ctx, l, nil, visit); err != nil {
			return err
		}
	}
	return nil
}

// Choose adds a layer to those to replace.
func (r *Rewrite) Choose(layer segment.LayerID) { r.chosen[layer] = true }

// IsChosen reports whether a layer is to be replaced.
func (r *Rewrite) IsChosen(layer segment.LayerID) bool { return r.chosen[layer] }

// Chosen returns the layers to replace. The map is shared.
func (r *Rewrite) Chosen() map[segment.LayerID]bool { return r.chosen }

// Put takes over the replacement of the chosen layers: a sealed segment in a quarantine of its own,
// which the rewrite closes.
func (r *Rewrite) Put(q *Quarantine) error {
	r.q = q
	if len(q.sealed) != 1 {
		return fmt.Errorf("odb: %d segments instead of one replace layers", len(q.sealed))
	}
	return nil
}

// Commit replaces the chosen layers by the new segment, and returns when that is durable. The
// segment or another own segment must have all of their objects. Errors: [ErrMoved].
func (r *Rewrite) Commit(ctx context.Context) error {
	prunes := r.view.manifest.prunes
	if after, err := r.after(); err == nil { // else changeManifest fails, too
		defer after.Close()
		if invariants.Enabled {
			r.check(after)
		}
		r.carryVisibility(ctx, after)
		r.carryCached(ctx, after)
	}
	err := r.store.changeManifest(ctx, r.view.pool, func(m *manifest, b *kv.Batch) error {
		if m.prunes != prunes { // objects left out as duplicates may have been pruned
			return ErrMoved
		}
		return r.replace(m, b)
	})
	if err != nil {
		return err
	}
	r.settled(ctx)
	return nil
}

// after returns a view of the pool as the rewrite leaves it. The caller closes it.
func (r *Rewrite) after() (*View, error) {
	next := r.view.manifest.clone()
	if err := r.exchange(&next); err != nil {
		return nil, err
	}
	return r.view.over(next).Aside(), nil
}

// checkedCountMax is the number of objects of the chosen layers up to which Commit verifies that
// each of them stays.
const checkedCountMax = 20_000

// check verifies that another layer of the view after the rewrite holds every object of the chosen
// ones. Its reads belong to no request, whose round trips are the same without it.
func (r *Rewrite) check(after *View) {
	ctx := context.Background()
	left := checkedCountMax
	for _, l := range r.view.layers {
		if !r.chosen[l.layerID()] {
			continue
		}
		var ids []object.ID
		last := object.ZeroID
		for i := range last {
			last[i] = 0xff
		}
		err := l.scan(ctx, object.ZeroID, last, func(id object.ID) bool {
			ids = append(ids, id)
			left--
			return left > 0
		})
		if err != nil {
			return // Commit or a reader reports it
		}
		for _, id := range ids {
			_, ok, err := after.locate(ctx, id)
			invariants.Check(ok || err != nil, "odb: object %s of layer %s is in no layer that stays", id, l.layerID())
		}
	}
}

// PackedBytes returns the size in bytes of the pack of the new segment, 0 without one.
func (r *Rewrite) PackedBytes() int64 {
	if r.q == nil {
		return 0
	}
	return r.q.PackedBytes()
}

// Settled tells the rewrite that the batch of its last [Rewrite.Stage] was committed.
func (r *Rewrite) Settled(ctx context.Context) {
	r.settled(ctx)
	if after, err := r.after(); err == nil {
		defer after.Close()
		r.carryVisibility(ctx, after)
		r.carryCached(ctx, after)
	}
}

func (r *Rewrite) settled(ctx context.Context) {
	if r.q != nil {
		r.q.Settled(ctx)
	}
}

// replace exchanges layers of m and adds the registration of the new segment to b. Errors:
// [ErrMoved].
func (r *Rewrite) replace(m *manifest, b *kv.Batch) error {
	if err := r.exchange(m); err != nil || r.q == nil {
		return err
	}
	if err := r.store.registerSegment(r.q.sealed[0], b, r.view.pool); err != nil {
		return err
	}
	r.q.staged, r.q.own = true, true
	return nil
}

// exchange puts the new segment, if there is one, in place of the first chosen layer, and removes
// the chosen layers, and the bitmaps that this leaves without their segments. Errors: [ErrMoved].
func (r *Rewrite) exchange(m *manifest) error {
	first, found, former := -1, 0, m.segments()
	layers := make([]manifestLayer, 0, len(m.layers))
	for _, l := range m.layers {
		if !r.chosen[l.id] {
			layers = append(layers, l)
			continue
		}
		if found++; first < 0 {
			first = len(layers)
		}
	}
	if found != len(r.chosen) {
		return ErrMoved
	}
	if r.q != nil {
		layers = slices.Insert(layers, first, sealedLayer(r.q.sealed[0]))
	}
	m.layers = layers
	m.leaveBitmaps(former)
	return nil
}
