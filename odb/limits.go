package odb

import "time"

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// PathComponentBytesMax is the longest name in a tree, in bytes.
const PathComponentBytesMax = 255

// DepthMax is the largest number of deltas between an object and the whole base below it.
const DepthMax = 4095

// Limits bound objects and packs. Zero fields take their defaults (docs/invariants.md 48).
type Limits struct {
	// ObjectBytes bounds one object; 4 GiB.
	ObjectBytes int64
	// PackBytes bounds one incoming pack; 16 GiB.
	PackBytes int64
	// PackCount bounds the objects of one incoming pack; 5,000,000.
	PackCount int
	// InflatedBytes and InflatedRatio bound the inflated size of a pack, in bytes and relative to its
	// size; the larger bound applies; 20 GiB, 200.
	InflatedBytes, InflatedRatio int64
	// InflateTime bounds the processor time of reading one pack; 10 min.
	InflateTime time.Duration
	// DeltaDepth bounds the delta chains of an incoming pack; 4,095, the maximum.
	DeltaDepth int
	// TreeDepth bounds the nesting of trees in a walk; 2,048.
	TreeDepth int
	// HotBytes, HotCount and HotValueBytes bound the addition of one write to the hot tier: total
	// bytes, number of objects, and bytes of one stored object; 1 MiB, 1,000, 128 KiB. A write beyond
	// one of them becomes a segment.
	HotBytes, HotCount, HotValueBytes int
}

func (l *Limits) setDefaults() {
	setDefault(&l.ObjectBytes, 4*gibibyte)
	setDefault(&l.PackBytes, 16*gibibyte)
	setDefault(&l.PackCount, 5_000_000)
	setDefault(&l.InflatedBytes, 20*gibibyte)
	setDefault(&l.InflatedRatio, 200)
	setDefault(&l.InflateTime, 10*time.Minute)
	setDefault(&l.DeltaDepth, DepthMax)
	l.DeltaDepth = min(l.DeltaDepth, DepthMax)
	setDefault(&l.TreeDepth, 2048)
	setDefault(&l.HotBytes, mebibyte)
	setDefault(&l.HotCount, 1000)
	setDefault(&l.HotValueBytes, 128*kibibyte)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
