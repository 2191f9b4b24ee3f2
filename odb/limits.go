package odb

import (
	"cmp"
	"time"
)

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
	l.ObjectBytes = cmp.Or(l.ObjectBytes, 4*gibibyte)
	l.PackBytes = cmp.Or(l.PackBytes, 16*gibibyte)
	l.PackCount = cmp.Or(l.PackCount, 5_000_000)
	l.InflatedBytes = cmp.Or(l.InflatedBytes, 20*gibibyte)
	l.InflatedRatio = cmp.Or(l.InflatedRatio, 200)
	l.InflateTime = cmp.Or(l.InflateTime, 10*time.Minute)
	l.DeltaDepth = min(cmp.Or(l.DeltaDepth, DepthMax), DepthMax)
	l.TreeDepth = cmp.Or(l.TreeDepth, 2048)
	l.HotBytes = cmp.Or(l.HotBytes, mebibyte)
	l.HotCount = cmp.Or(l.HotCount, 1000)
	l.HotValueBytes = cmp.Or(l.HotValueBytes, 128*kibibyte)
}
