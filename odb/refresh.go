package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/pack/object"
)

// Refresh moves the quarantine to the present state of the pool, so that its view shows objects
// committed meanwhile. It rescues pruned objects that quarantined objects need. It costs one read
// when nothing has changed, and none when [Quarantine.ReadAhead] has found that. Errors:
// [ErrUncommitted] when something has changed and the quarantine follows others.
func (q *Quarantine) Refresh(ctx context.Context) error {
	if q.ahead != nil && !q.ahead.refreshed {
		q.ahead.refreshed = true
		return nil
	}
	q.ahead = nil
	base := q.stored()
	if base.manifest.unborn {
		return nil
	}
	now, _, err := base.reread(ctx, nil)
	if err != nil || now == nil {
		return err
	}
	if q.following != nil {
		return ErrUncommitted // what is rescued must not be forgotten
	}
	next, _, err := q.store.confirm(ctx, q.store.newView(base.pool, *now), nil)
	if err != nil {
		return err
	}
	next.owner = base.owner
	if next.manifest.prunes != base.manifest.prunes {
		if err := q.rebase(ctx, next); err != nil {
			return errors.Join(err, next.Close())
		}
	}
	q.mu.Lock()
	q.old = append(q.old, q.base)
	q.base = next
	q.mu.Unlock()
	if next.manifest.prunes != base.manifest.prunes {
		return q.revive(ctx, base)
	}
	return nil
}

// ahead is what [Quarantine.ReadAhead] has found: the manifest was that of the quarantine.
type ahead struct {
	counts    [][]byte // the stored number of additions to the last hot layer, over remote keys
	refreshed bool     // Refresh has relied on it
}

// ReadAhead returns what the next Refresh and the next Stage are going to read, and a function that
// takes what was found: a caller reads it, at one instant, with what else a try begins with. If the
// manifest has not changed since the last Refresh, neither of them reads it again. The batch of
// Stage requires what was found.
func (q *Quarantine) ReadAhead() (set kv.ReadSet, take func(rows kv.Rows)) {
	q.ahead = nil
	base := q.stored()
	set = kv.ReadSet{Keys: base.appendCountKey([][]byte{manifestKey(base.pool)})}
	behind := base.behind(&set)
	return set, func(rows kv.Rows) {
		behind.take(rows.Pages)
		if bytes.Equal(rows.Values[0], base.manifest.raw) {
			q.ahead = &ahead{counts: rows.Values[1:]}
		}
	}
}

// appendCountKey appends the key of the number of additions to the last hot layer, which only
// counts over remote keys.
func (v *View) appendCountKey(keys [][]byte) [][]byte {
	if open, ok := v.manifest.hot(); ok && v.store.options.RemoteKeys {
		keys = append(keys, hot.CountKey(open))
	}
	return keys
}

// AsRead has the next Stage require the manifest as the view of a quarantine without objects has
// read it, instead of reading it again.
func (q *Quarantine) AsRead() { q.ahead = &ahead{refreshed: true} }

// rebase undeltifies quarantined deltas whose base was pruned. Their bases are still readable: the
// former layers are pinned.
func (q *Quarantine) rebase(ctx context.Context, next *View) error {
	for _, id := range q.hot.order {
		at, _, err := q.hot.find(ctx, id)
		if err != nil {
			return err
		}
		if stays, err := q.baseStays(ctx, at, next); err != nil {
			return err
		} else if stays {
			continue
		}
		t, data, err := q.view.ReadAt(ctx, at)
		if err != nil {
			return err
		}
		whole := hot.Compress(hot.Value{ID: id, Type: t, Size: int64(len(data)), ContentSize: int64(len(data))}, data)
		q.hot.replace(id, whole.Encode())
	}
	return nil
}

// baseStays reports whether next has the base of a hot object of the quarantine.
func (q *Quarantine) baseStays(ctx context.Context, at Location, next *View) (bool, error) {
	s, err := q.hot.step(ctx, at)
	if err != nil || !s.Delta {
		return true, err
	}
	if _, quarantined, err := q.hot.find(ctx, s.Base); err != nil || quarantined {
		return true, err
	}
	_, ok, err := next.locate(ctx, s.Base)
	return ok, err
}

// revive rescues pruned objects that the quarantine builds on: it copies them into the quarantine.
// These are the objects that quarantined objects name, those that it did not write because they
// were stored, and all objects that these name. They are readable in old, the view before the
// prune, whose layers are pinned.
func (q *Quarantine) revive(ctx context.Context, old *View) error {
	var needed []object.ID
	need := func(id object.ID) error {
		there, err := q.view.Has(ctx, id)
		if err == nil && !there {
			needed = append(needed, id)
		}
		return err
	}
	for id := range q.relied {
		if err := need(id); err != nil {
			return err
		}
	}
	if err := q.eachNamed(ctx, need); err != nil {
		return err
	}
	for len(needed) > 0 {
		id := needed[len(needed)-1]
		needed = needed[:len(needed)-1]
		if there, err := q.view.Has(ctx, id); there || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := q.copyFrom(ctx, old, id, need); err != nil {
			return fmt.Errorf("rescue pruned object %s: %w", id, err)
		}
	}
	return nil
}

// eachNamed calls visit with the links of the quarantined objects.
func (q *Quarantine) eachNamed(ctx context.Context, visit func(id object.ID) error) error {
	for _, l := range q.currentLayers() {
		var err error
		switch l := l.(type) {
		case *SegmentLayer:
			err = q.view.eachNamedSegment(ctx, l, visit)
		case *memoryLayer:
			err = q.view.eachNamedAt(ctx, l, q.hot.order, visit)
		case *pendingSegment:
			err = q.view.eachNamedAt(ctx, l, l.ids, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *View) eachNamedAt(ctx context.Context, l layer, ids []object.ID, visit func(id object.ID) error) error {
	for _, id := range ids {
		at, ok, err := l.find(ctx, id)
		if err == nil && ok {
			err = v.eachLink(ctx, at, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyFrom quarantines an object of another view, and calls need with its links.
func (q *Quarantine) copyFrom(ctx context.Context, old *View, id object.ID, need func(id object.ID) error) error {
	info, err := old.Stat(ctx, id)
	if err != nil {
		return err
	}
	if info.Type == object.TypeBlob && info.Size > streamedMin {
		o, err := old.Open(ctx, id)
		if err != nil {
			return err
		}
		defer o.Close()
		content, err := o.Section(0, o.Size)
		if err != nil {
			return err
		}
		_, err = q.WriteBlobFrom(ctx, content, o.Size)
		return errors.Join(err, content.Close())
	}
	t, data, err := old.Read(ctx, id)
	if err != nil {
		return err
	}
	// Its parents may not be here yet; the row of a commit is that of the pool it comes from.
	var row *GraphRow
	if t == object.TypeCommit {
		known, err := old.Graph(ctx, id)
		if err != nil {
			return err
		}
		row = &known
	}
	if err := q.putRow(ctx, id, t, data, object.ZeroID, row); err != nil {
		return err
	}
	return object.Links(t, data, func(id object.ID, _ object.Type) error { return need(id) })
}
