package odb

import (
	"context"
	"errors"

	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Reach finds what objects lead to. A fork may read what the tips lead to that it took, and the
// store, which has no walks of its own, asks for that when somebody wants to know. Package
// packhorse/odb/packgen has it.
type Reach interface {
	// Reach returns what wants lead to and haves do not, among the objects of v.
	Reach(ctx context.Context, v *View, wants, haves []object.ID) (*Reached, error)
	// Leads reports whether some of the tips, commits or others, lead to each of commits.
	Leads(ctx context.Context, v *View, tips, commits []object.ID) (bool, error)
	// CheckBitmaps compares each bitmap of a file, which is over segments, the oldest first, with what
	// its commit leads to in v, a view of these segments alone. Errors: [ErrDisagree], and those of
	// reading.
	CheckBitmaps(ctx context.Context, v *View, segments []segment.LayerID, bitmaps *segment.File) error
}

// Reached is a set of objects of a view.
type Reached struct {
	// Words has a bit for each ordinal, 64 in a word from the lowest bit on, of each segment of
	// [View.Segments]; missing words are zero. Counts are how many objects those segments have.
	Words  [][]uint64
	Counts []int
	// Loose are the objects that lie in no segment, in any order.
	Loose []object.ID
}

// errNoReach says that [Options] has no Reach.
var errNoReach = errors.New("odb: what a fork may read cannot be found out: Options.Reach is nil")
