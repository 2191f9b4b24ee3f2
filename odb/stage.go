package odb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"packhorse/odb/file"
	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// Stage puts all quarantined objects into b, with the precondition that the pool's manifest is
// still the one that Stage, or [Quarantine.ReadAhead] before it, has read. It is called once for
// every attempt to commit, after [Quarantine.Refresh], inside the transaction that also carries the
// precondition on the repository's head. That precondition keeps another writer from adding an
// object that Stage found absent; over remote keys b requires, too, that nothing was added to the
// pool's last hot layer. A pool of [Store.NewPool] is created by b.
//
// Errors: [ErrPruned] when objects were pruned since the last Refresh and connectivity must be
// checked again, [ErrManyLayers], [ErrTaken].
func (q *Quarantine) Stage(ctx context.Context, b *kv.Batch) error {
	if q.closed {
		return ErrClosed
	}
	if err := q.Seal(ctx); err != nil {
		return err
	}
	if q.staged && q.store.intents != nil { // something has made the last attempt fail
		if err := q.store.intents.Stand(ctx, q.sealedNames()...); err != nil {
			return err
		}
	}
	base := q.stored()
	ask := &staging{order: q.hot.order}
	if base.manifest.unborn {
		return q.stageFirst(ctx, b, base, ask)
	}
	now, values, err := q.present(ctx, base, ask)
	if err != nil {
		return err
	}
	defer now.Close()
	if now.manifest.prunes != base.manifest.prunes {
		return ErrPruned
	}
	raw := now.manifest.raw
	b.Require(manifestKey(base.pool), raw)
	q.staged, q.joins, q.counted, q.added = true, true, nil, nil
	if len(q.hot.order) > 0 {
		if err := ask.answer(ctx, now, values); err != nil {
			return err
		}
		if err := q.stageHot(ctx, b, now, ask); err != nil {
			return err
		}
	}
	return q.stageSegments(b, raw, now)
}

// stageFirst adds the pool to b with all quarantined objects: it does not exist yet.
func (q *Quarantine) stageFirst(ctx context.Context, b *kv.Batch, base *View, ask *staging) error {
	now := base.over(base.manifest)
	defer now.Close()
	q.staged, q.joins, q.counted, q.added = true, true, nil, nil
	if len(q.hot.order) > 0 {
		rows, err := q.store.keys.Read(ctx, kv.ReadSet{Keys: ask.keys(now)})
		if err != nil {
			return fmt.Errorf("read hot layers of pool %s: %w", base.pool, err)
		}
		if err := ask.answer(ctx, now, rows.Values); err != nil {
			return err
		}
		if err := q.stageHot(ctx, b, now, ask); err != nil {
			return err
		}
	}
	first := now.manifest.clone()
	first.unborn = false
	if err := q.joinSegments(b, base.pool, &first); err != nil {
		return err
	}
	first.create(b, base.pool)
	return nil
}

// present returns a view of the pool as it is, or was when it was read ahead, and the values of
// what ask wants to know.
func (q *Quarantine) present(ctx context.Context, base *View, ask *staging) (*View, [][]byte, error) {
	found := q.ahead
	if q.ahead = nil; found == nil {
		return q.store.confirm(ctx, q.store.newView(base.pool, base.manifest), ask.keys)
	}
	// base has had the layers pinned since before. What was asked later than the manifest and the
	// number of additions is true of both, as long as the batch finds them unchanged.
	now := base.over(base.manifest)
	keys := ask.keys(now)
	if len(keys) <= len(found.counts) {
		return now, found.counts, nil
	}
	rows, err := q.store.keys.Read(ctx, kv.ReadSet{Keys: keys[len(found.counts):]})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read hot layers of pool %s: %w", base.pool, err), now.Close())
	}
	return now, slices.Concat(found.counts, rows.Values), nil
}

// stageHot adds the small objects that the pool does not have now to b.
func (q *Quarantine) stageHot(ctx context.Context, b *kv.Batch, now *View, ask *staging) error {
	target := ask.target.id
	count, before, err := q.countBefore(target, ask.count, ask.before)
	if err != nil {
		return err
	}
	var added map[object.ID]hot.Row
	if ask.copied {
		added = make(map[object.ID]hot.Row, len(q.hot.order))
	}
	ids := make([]object.ID, 0, len(q.hot.order))
	for _, id := range q.hot.order {
		there, err := q.holdsBefore(ctx, id)
		if err == nil && !there {
			there, err = now.holds(ctx, id)
		}
		if err != nil {
			return err
		}
		if there {
			continue
		}
		if invariants.Enabled {
			q.checkBase(ctx, now, id)
		}
		stored := hot.Row{Value: q.hot.values[id]}
		if row, ok := q.hot.rows[id]; ok {
			// An octopus without its row is parsed.
			if value := hot.EncodeRow(id, &row); len(value) <= q.store.limits.HotValueBytes {
				stored.Graph = value
				if f := q.filters[id]; f != nil {
					stored.Filter = hot.EncodeFilter(id, f)
				}
			}
		}
		stored.Put(b, target, id)
		if ids = append(ids, id); added != nil {
			added[id] = stored
		}
	}
	q.hotID, q.added, q.addedTo = target, added, count
	if len(ids) == 0 || !q.store.options.RemoteKeys {
		return nil
	}
	if q.store.copies != nil {
		q.store.copies.Layer(target).Prepared(count)
	}
	q.counted, err = hot.Add(b, target, before, ids)
	return err
}

// staging is what one Stage asks the store together with the manifest, where reads are dear:
// whether hot layers have the objects, and the number of additions, as of which copies of the
// layers know it. Elsewhere objects are looked up one by one: as long as manifest and head stay,
// nothing is added or removed in between.
type staging struct {
	order  []object.ID // the objects
	target *hotLayer   // takes writes
	copied bool        // target has a copy, which then gets the objects
	before []byte      // the stored number of additions
	count  uint64
	asked  []Location
}

// askedMax bounds the objects that are asked together. Beyond, they are looked up one by one.
const askedMax = kv.ReadCountMax / 2

// keys returns the keys to read for a view.
func (s *staging) keys(now *View) [][]byte {
	s.target, s.asked = nil, s.asked[:0]
	open, ok := now.manifest.hot()
	if !ok || len(s.order) == 0 {
		return nil
	}
	layers := now.hotLayers()
	if at := slices.IndexFunc(layers, func(h *hotLayer) bool { return h.id == open }); at >= 0 {
		s.target, s.copied = layers[at], layers[at].rows.IsCopied()
	}
	if !now.store.options.RemoteKeys {
		return nil
	}
	keys := append(make([][]byte, 0, 1+len(s.order)), hot.CountKey(open))
	for _, h := range layers {
		if h.rows.IsCopied() {
			continue
		}
		for _, id := range s.order[:min(len(s.order), askedMax-len(s.asked))] {
			s.asked = append(s.asked, h.at(id, nil))
			keys = append(keys, hot.ObjectKey(h.id, id))
		}
	}
	return keys
}

// answer passes what was read to the layers of the view.
func (s *staging) answer(ctx context.Context, now *View, values [][]byte) (err error) {
	if s.target == nil {
		return now.store.damage.Corrupt(segment.LayerID(now.pool), object.ZeroID, "manifest names no hot layer")
	}
	if now.store.options.RemoteKeys {
		s.before, values = values[0], values[1:]
	}
	if s.count, err = hot.DecodeCount(s.target.id, s.before); err != nil {
		return now.store.damaged(s.target.id, object.ZeroID, err)
	}
	for i, asked := range s.asked {
		asked.layer.(*hotLayer).rows.Tell(asked.id, values[i])
	}
	return s.target.rows.CatchUp(ctx, s.count)
}

// checkBase verifies that the base of a hot delta is stored, or joins with it.
func (q *Quarantine) checkBase(ctx context.Context, now *View, id object.ID) {
	value, err := hot.Decode(id, q.hot.values[id])
	if err != nil || value.Base.IsZero() {
		return
	}
	if _, ok := q.hot.values[value.Base]; ok {
		return
	}
	if before, err := q.holdsBefore(ctx, value.Base); before || err != nil {
		return
	}
	_, stored, err := now.locate(ctx, value.Base)
	invariants.Check(stored || err != nil, "odb: object %s joins pool %s as a delta against %s, which is not stored",
		id, now.pool, value.Base)
}

// stageSegments adds the registrations of the files and a new manifest to b.
func (q *Quarantine) stageSegments(b *kv.Batch, raw []byte, now *View) error {
	if len(q.sealed) == 0 {
		return nil
	}
	next := now.manifest.clone()
	if err := q.joinSegments(b, now.pool, &next); err != nil {
		return err
	}
	return q.store.stageManifest(b, now.pool, raw, &now.manifest, &next)
}

// joinSegments adds the quarantined segments to a manifest, and the registrations of their files to
// b.
func (q *Quarantine) joinSegments(b *kv.Batch, pool PoolID, next *manifest) error {
	for _, segment := range q.sealed {
		if invariants.Enabled {
			invariants.Check(segment.Count > 0, "odb: segment %s without objects joins pool %s", segment.ID, pool)
		}
		next.layers = append(next.layers, sealedLayer(segment))
		if err := q.store.registerSegment(segment, b, pool); err != nil {
			return err
		}
	}
	return nil
}

// registerSegment adds the registrations of the files of a segment to b.
func (s *Store) registerSegment(sealed *segment.Sealed, b *kv.Batch, pool PoolID) error {
	r := segment.Registration{
		Pool: pool, Kind: segment.KindSegment, Count: int64(sealed.Count), Bytes: sealed.DataBytes,
	}
	err := s.register(b, sealed.ID, r)
	if err == nil && sealed.Graph != (segment.LayerID{}) {
		graph := segment.Registration{Pool: pool, Kind: segment.KindGraph, Bytes: sealed.GraphBytes}
		err = s.register(b, sealed.Graph, graph)
	}
	return err
}

// sealedNames returns the names of the quarantined files.
func (q *Quarantine) sealedNames() (names []string) {
	for _, seg := range q.sealed {
		names = append(names, segment.FileName(seg.ID))
		if seg.Graph != (segment.LayerID{}) {
			names = append(names, segment.GraphFile(seg.Graph))
		}
	}
	return names
}

// Settled tells the quarantine that the batch of its last Stage was committed. Files are moved to
// their place in the background. Until then, or if that fails, reads find them where they are, and
// the next start moves them.
func (q *Quarantine) Settled(ctx context.Context) {
	if !q.staged || q.settled {
		return
	}
	q.settled = true
	if grew := q.store.options.Grew; grew != nil && !q.own {
		grew(q.view.pool,
			Growth{Owner: q.view.owner, ObjectCount: len(q.hot.order), HotBytes: int64(q.hot.size), SegmentCount: len(q.sealed)})
	}
	if q.store.copies != nil && len(q.added) > 0 {
		q.store.copies.Layer(q.hotID).Added(q.addedTo, q.added)
	}
	q.store.counts.hotWrites.Add(uint64(len(q.hot.order)))
	q.store.counts.segments.Add(uint64(len(q.sealed)))
	for id, plain := range q.hot.plain {
		q.store.env.Cache.Set(hotCacheKey(q.hotID, id), plain)
	}
	isLarge := false
	for _, seg := range q.sealed {
		isLarge = isLarge || seg.Count >= q.store.options.AuxiliaryCount
	}
	if names := q.sealedNames(); len(names) > 0 {
		q.store.registered(ctx, names...)
	}
	if isLarge && q.store.options.GrewLarge != nil {
		q.store.options.GrewLarge(q.view.pool, q.view.owner)
	}
}

// Unstage tells the quarantine that no batch with its objects is ever applied: Settled has no
// effect, and Close removes its files.
func (q *Quarantine) Unstage() { q.staged = false }

// settle moves registered files to their place, if the file store has another one before.
// [Store.Close] waits for it.
func (s *Store) settle(ctx context.Context, names []string) {
	if _, ok := s.Files.(file.Incoming); !ok {
		return
	}
	rescue.Go(&s.settlers, func() error {
		var err error
		for _, name := range names {
			err = errors.Join(err, file.Settle(ctx, s.Files, name))
		}
		return err
	}, func(err error) { s.log.WarnContext(ctx, "failed to move a file to its place", "error", err) })
}

// sealedLayer returns the entry of a segment in a manifest.
func sealedLayer(s *segment.Sealed) manifestLayer {
	l := manifestLayer{kind: segment.KindSegment, id: s.ID}
	if s.Graph != (segment.LayerID{}) {
		l.auxiliaries = []manifestLayer{{kind: segment.KindGraph, id: s.Graph}}
	}
	return l
}
