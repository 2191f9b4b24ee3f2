package odb

import (
	"context"
	"errors"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Reach computes reachability. The visibility set of a fork holds the objects that its tips reach.
// The store has no walks of its own, so it calls Reach when a request needs the set. Package
// packhorse/odb/packgen implements it.
type Reach interface {
	// Reach returns the objects of v that wants reach. It may leave out those in known, and any that
	// haves reach, all of which are in known. Both are empty for a walk from the roots.
	Reach(ctx context.Context, v *View, wants, haves []object.ID, known Reached) (*Reached, error)
	// Leads reports whether tips, commits or other objects, together reach each of commits.
	Leads(ctx context.Context, v *View, tips, commits []object.ID) (bool, error)
	// CheckBitmaps compares each bitmap of a file, which covers segments, the oldest first, with the
	// objects that its commit reaches in v, a view of these segments alone. Errors: [ErrDisagree], and
	// those of reading.
	CheckBitmaps(ctx context.Context, v *View, segments []segment.LayerID, bitmaps *segment.File) error
}

// Reached is a set of objects of a view.
type Reached struct {
	// Words has a bit for each ordinal, 64 in a word from the lowest bit on, of each segment of
	// [View.Segments]; missing words are zero. Counts are the numbers of objects of those segments.
	Words  [][]uint64
	Counts []int
	// Unpacked are objects that lie outside of these segments, or did once, each once, in the order of
	// their IDs.
	Unpacked []object.ID
}

// errNoReach says that [Options] has no Reach.
var errNoReach = errors.New("odb: no visibility set of a fork: Options.Reach is nil")
