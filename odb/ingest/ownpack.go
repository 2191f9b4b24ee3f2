package ingest

import (
	"context"

	"packhorse/odb"
	"packhorse/odb/segment"
)

// OwnPack marks a pack of stored objects: it becomes a segment whatever its size, and the limits
// for packs from outside do not apply. Failures of git's checks are logged, and the objects kept.
type OwnPack struct {
	// Streams are the tables of the block streams in the pack.
	Streams []segment.BlockStream
	// Provisional says that the pack is delta-incomplete.
	Provisional bool
	// Workers is the number of goroutines that apply deltas.
	Workers int
	// Rest, if set, is called often, and may wait. Its error ends the work.
	Rest func(ctx context.Context) error

	objections objections
}

// rest calls Rest, if there is one.
func (o *OwnPack) rest(ctx context.Context) error {
	if o == nil {
		return ctx.Err()
	}
	return o.Rest(ctx)
}

// liftLimits removes the limits for packs from outside.
func liftLimits(l *odb.Limits) {
	const unlimited = 1 << 50
	l.ObjectBytes, l.PackBytes, l.PackCount = unlimited, unlimited, 1<<32-1
	l.InflatedBytes, l.InflatedRatio, l.InflateTime = unlimited, unlimited>>30, 1<<62
	l.DeltaDepth = odb.DepthMax
}
