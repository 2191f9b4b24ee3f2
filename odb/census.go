package odb

import (
	"context"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/odb/traffic"
)

// FileBytes is what the files of a store take, in bytes, by what becomes of them.
type FileBytes struct {
	// Segments are the packs of segments, without their indexes; Auxiliary are graph files, filters,
	// histories, trigrams and bitmaps, except those of older releases, whose registrations lack the
	// size.
	Segments, Auxiliary int64
	// Obsolete are files of either kind that no pool uses any more, and that a sweep will delete.
	Obsolete int64
}

// Total is all of it.
func (b FileBytes) Total() int64 { return b.Segments + b.Auxiliary + b.Obsolete }

// obsoleteMax bounds the obsolete files that a count remembers, some 40 bytes each. Others count as
// used.
const obsoleteMax = 200_000

// CountFiles adds up the sizes of all files, by their registrations. It opens no file and reads
// each row once, and rests by pace.
func (s *Store) CountFiles(ctx context.Context, pace *traffic.Pacer) (FileBytes, error) {
	obsolete, err := s.obsoleteFiles(ctx, pace)
	if err != nil {
		return FileBytes{}, fmt.Errorf("count obsolete files: %w", err)
	}
	var sum FileBytes
	all := kv.ScanOptions{Start: []byte{tableRegistration}, End: kv.PrefixEnd([]byte{tableRegistration})}
	for pair, err := range s.keys.Scan(ctx, all) {
		if err == nil {
			err = pace.Rest(ctx)
		}
		if err != nil {
			return FileBytes{}, fmt.Errorf("count files: %w", err)
		}
		r, err := segment.DecodeRegistration(pair.Value)
		if err != nil || len(pair.Key) != 1+len(segment.LayerID{}) {
			continue // fsck reports it
		}
		switch _, gone := obsolete[segment.LayerID(pair.Key[1:])]; {
		case gone:
			sum.Obsolete += r.Bytes
		case r.Kind == segment.KindSegment:
			sum.Segments += r.Bytes
		default:
			sum.Auxiliary += r.Bytes
		}
	}
	return sum, nil
}

// obsoleteFiles returns the files that have an obsolete entry and that no pool uses.
func (s *Store) obsoleteFiles(ctx context.Context, pace *traffic.Pacer) (map[segment.LayerID]struct{}, error) {
	obsolete := make(map[segment.LayerID]struct{})
	var asked []segment.LayerID
	ask := func() error {
		var set kv.ReadSet
		for _, id := range asked {
			users := usersOf(id)
			users.Limit = 1
			set.Ranges = append(set.Ranges, users)
		}
		found, err := s.keys.Read(ctx, set)
		if err != nil {
			return err
		}
		for i, page := range found.Pages {
			if len(page.Pairs) == 0 {
				obsolete[asked[i]] = struct{}{}
			}
		}
		asked = asked[:0]
		return nil
	}
	for pair, err := range s.keys.Scan(ctx, s.obsolete(0)) {
		if err == nil {
			err = pace.Rest(ctx)
		}
		if err != nil {
			return nil, err
		}
		e, err := segment.DecodeObsolete(pair.Key)
		if err != nil || e.Kind == segment.KindPool || e.Kind == segment.KindHot {
			continue
		}
		if asked = append(asked, e.ID); len(asked) == kv.ReadCountMax {
			if err := ask(); err != nil {
				return nil, err
			}
		}
		if len(obsolete) >= obsoleteMax {
			return obsolete, nil
		}
	}
	if len(asked) == 0 {
		return obsolete, nil
	}
	return obsolete, ask()
}
