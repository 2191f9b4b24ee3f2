package odb

import (
	"context"
	"errors"
	"slices"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// AttachBeside puts a durable auxiliary file of a kind, but no bitmaps, beside a segment that has
// none. It removes the file if the segment is no longer in the pool, and after any error before the
// commit.
func (s *Store) AttachBeside(
	ctx context.Context, pool PoolID, beside segment.LayerID, kind segment.LayerKind, added segment.Auxiliary,
) error {
	return s.attach(ctx, pool, beside, kind, added,
		func(other segment.LayerID) bool { return other != beside },
		func(*manifest) bool { return true })
}

// claim names an auxiliary file that is being made.
type claim struct {
	beside segment.LayerID
	kind   segment.LayerKind
}

// Claim reports whether the caller is the only one of this process who makes an auxiliary file of a
// kind beside a segment; others would only waste their time. The caller calls release when the file
// is attached.
func (s *Store) Claim(beside segment.LayerID, kind segment.LayerKind) (release func(), ok bool) {
	c := claim{beside, kind}
	_, taken := s.claims.LoadOrStore(c, struct{}{})
	return func() { s.claims.Delete(c) }, !taken
}

// AttachBitmaps puts a durable bitmap file beside the newest of the segments that it covers, in
// place of all other bitmaps of the pool. It removes the file if these are no longer the pool's
// oldest segments, and after any error before the commit.
func (s *Store) AttachBitmaps(
	ctx context.Context, pool PoolID, over []segment.LayerID, bitmaps segment.Auxiliary,
) error {
	return s.attach(ctx, pool, over[len(over)-1], segment.KindBitmap, bitmaps,
		func(segment.LayerID) bool { return false },
		func(m *manifest) bool {
			segments := m.segments()
			return len(segments) >= len(over) && slices.Equal(segments[:len(over)], over)
		})
}

// segments returns the segments of a manifest, the oldest first.
func (m *manifest) segments() []segment.LayerID {
	var ids []segment.LayerID
	for _, l := range m.layers {
		if l.kind == segment.KindSegment {
			ids = append(ids, l.id)
		}
	}
	return ids
}

// leaveBitmaps removes the bitmaps beside segments from the first one on that is not where it was
// in former. They cover a list that is no beginning of the segments any more.
func (m *manifest) leaveBitmaps(former []segment.LayerID) {
	same, at := true, 0
	for i := range m.layers {
		l := &m.layers[i]
		if l.kind != segment.KindSegment {
			continue
		}
		if same = same && at < len(former) && former[at] == l.id; !same {
			l.auxiliaries = slices.DeleteFunc(l.auxiliaries, func(a manifestLayer) bool { return a.kind == segment.KindBitmap })
		}
		at++
	}
}

// SegmentsAlone returns a view of the pool's segments without hot layers, and their IDs, the oldest
// first. Without segments the view is nil. All objects of borrowed segments are readable through
// it. The caller closes it.
func (v *View) SegmentsAlone() (*View, []segment.LayerID) {
	return v.oldestSegments(len(v.manifest.layers))
}

// oldestSegments is SegmentsAlone with at most count segments.
func (v *View) oldestSegments(count int) (*View, []segment.LayerID) {
	alone := manifest{version: v.manifest.version, prunes: v.manifest.prunes}
	for _, l := range v.manifest.layers {
		if l.kind == segment.KindSegment && len(alone.layers) < count {
			alone.layers = append(alone.layers, l)
		}
	}
	if len(alone.layers) == 0 {
		return nil, nil
	}
	return v.over(alone).Aside().Linked(), alone.segments()
}

// errLayersMoved says that the layers that an auxiliary file was made for have left the manifest.
var errLayersMoved = errors.New("odb: the layers have changed meanwhile")

// attach puts a durable auxiliary file beside a segment. Others of its kind leave the manifest,
// unless keeps says that they stay beside a layer. It removes the file if fits returns false, and
// after any error before the commit.
func (s *Store) attach(
	ctx context.Context, pool PoolID, beside segment.LayerID, kind segment.LayerKind, added segment.Auxiliary,
	keeps func(beside segment.LayerID) bool, fits func(*manifest) bool,
) error {
	err := s.changeManifest(ctx, pool, func(m *manifest, b *kv.Batch) error {
		at := slices.IndexFunc(m.layers, func(l manifestLayer) bool { return l.id == beside })
		if at < 0 || !fits(m) {
			return errLayersMoved
		}
		for i := range m.layers {
			l := &m.layers[i]
			l.auxiliaries = slices.DeleteFunc(l.auxiliaries, func(c manifestLayer) bool {
				return c.kind == kind && !keeps(l.id)
			})
		}
		m.layers[at].auxiliaries = append(m.layers[at].auxiliaries, manifestLayer{kind: kind, id: added.ID})
		return s.register(b, added.ID, segment.Registration{Pool: pool, Kind: kind, Bytes: added.Bytes})
	})
	name := kind.FileName(added.ID)
	if err != nil {
		removed := s.deleteUnregistered(context.WithoutCancel(ctx), added.ID, name)
		if errors.Is(err, errLayersMoved) {
			return removed
		}
		return errors.Join(err, removed)
	}
	s.registered(ctx, name)
	return nil
}
