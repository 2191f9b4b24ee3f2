package ingest

import (
	"context"

	"packhorse/odb"
	"packhorse/odb/segment"
)

// OwnPack marks a pack that is made of what is stored: it becomes a segment whatever its size, and
// limits for packs from outside do not hold. What git's checks say against its objects is logged
// and kept.
type OwnPack struct {
	// Streams are the tables of the block streams in the pack.
	Streams []segment.BlockStream
	// Provisional says that deltas were found among few objects.
	Provisional bool
	// Workers is how many goroutines apply deltas.
	Workers int
	// Rest is called often, and may wait.
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

// liftLimits takes away what is refused from outside.
func liftLimits(l *odb.Limits) {
	const unlimited = 1 << 50
	l.ObjectBytes, l.PackBytes, l.PackCount = unlimited, unlimited, 1<<32-1
	l.InflatedBytes, l.InflatedRatio, l.InflateTime = unlimited, unlimited>>30, 1<<62
	l.DeltaDepth = odb.DepthMax
}
