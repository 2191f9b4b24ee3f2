package segment

import (
	"context"

	"packhorse/pack/object"
)

// IsRefusedDelta reports whether git may refuse the stored form of an object of size bytes. Git
// reads no delta below [delta.SizeMin], and only a delta with an empty result is so short. Ingest
// accepts no such delta, but older segments and hot layers may have them. Packs then contain the
// whole object, also if its delta is long enough for git, and maintenance stores it whole. its
// delta is long enough for git, and maintenance writes it so.
func IsRefusedDelta(isDelta bool, size int64) bool { return isDelta && size == 0 }

// HasRefusedDelta reports whether an object of the segment is stored as a delta that git refuses.
// Only two objects are empty.
func (g Segment) HasRefusedDelta(ctx context.Context) (bool, error) {
	for _, id := range []object.ID{object.EmptyBlobID, object.EmptyTreeID} {
		ordinal, ok, err := g.Lookup(ctx, id)
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		record, err := g.Record(ctx, ordinal)
		if err != nil {
			return false, err
		}
		if IsRefusedDelta(record.Base != NoOrdinal, record.Size) {
			return true, nil
		}
	}
	return false, nil
}
