package odb

import (
	"context"
	"fmt"

	"packhorse/pack/delta"
	"packhorse/pack/object"
)

// isRefusedDelta reports whether git may refuse how an object of size bytes is stored. Git reads no delta below [delta.SizeMin], and only
// those that make nothing are so short. No such delta comes in, but segments and hot layers of former times may have them: the object goes out
// whole, also if its delta is long enough for git, and maintenance writes it so.
func isRefusedDelta(isDelta bool, size int64) bool { return isDelta && size == 0 }

// errRefusedDelta is what fsck says of one.
var errRefusedDelta = fmt.Errorf("it is stored as a delta that makes nothing, which git does not read below %d bytes; "+
	"clients get it whole, and maintenance writes it so", delta.SizeMin)

// hasRefusedDelta reports whether an object of the segment is stored as a delta that git refuses. Only two objects are empty.
func (g *segment) hasRefusedDelta(ctx context.Context) (bool, error) {
	for _, id := range []object.ID{object.EmptyBlobID, object.EmptyTreeID} {
		ordinal, ok, err := g.lookup(ctx, id)
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		record, err := g.record(ctx, ordinal)
		if err != nil {
			return false, err
		}
		if isRefusedDelta(record.Base != noOrdinal, record.Size) {
			return true, nil
		}
	}
	return false, nil
}
