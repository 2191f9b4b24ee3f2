package odb

import (
	"context"
	"errors"

	"packhorse/pack/object"
)

// FsckOptions are the settings of [Store.Fsck].
type FsckOptions struct {
	// Tips must be there, and whatever they reach.
	Tips []object.ID
	// Progress hears of what has been done.
	Progress func(done, total int64)
}

// FsckReport is what [Store.Fsck] found.
type FsckReport struct {
	ObjectCount int64
	Problems    []error
}

// Fsck verifies everything in a pool: checksums, ids, formats and links of every object, and index against data.
func (s *Store) Fsck(ctx context.Context, pool PoolID, options FsckOptions) (*FsckReport, error) {
	return nil, errUnfinished
}

var errUnfinished = errors.New("odb: not there yet")
