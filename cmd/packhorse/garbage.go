package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// The garbage that may gather before a collection, in percent of the live heap. Most of the heap is
// caches of bytes without pointers, which the collector need not scan, so frequent collection is
// cheap and keeps the process small. A small heap is collected less often: with the share of the
// memory that is set aside for garbage.
const (
	garbagePercentMin = 40
	garbagePercentMax = 200 // the live heap may grow meanwhile
	garbageShare      = 2
)

// collector decides after each collection of garbage when the next one begins.
type collector struct {
	garbage int64 // bytes that may gather even if the live heap is small
	live    func() int64
	set     func(percent int) int
	stopped atomic.Bool

	percent int // as set; of start, and then of one cleanup after the other
}

// startCollector returns the collector of the process. garbage is in bytes.
func startCollector(garbage int64) *collector {
	c := &collector{garbage: garbage, live: liveHeap, set: debug.SetGCPercent}
	c.start()
	return c
}

func (c *collector) start() {
	c.adapt()
	c.await()
}

// stop leaves the process with what was set last.
func (c *collector) stop() { c.stopped.Store(true) }

// collection is an object that the next collection finds unused. It has a pointer, since the
// cleanup of a tiny object may never run.
type collection struct{ _ *collection }

// await adapts after the next collection.
func (c *collector) await() {
	runtime.AddCleanup(new(collection), func(c *collector) {
		if c.stopped.Load() {
			return
		}
		c.adapt()
		c.await()
	}, c)
}

// adapt sets the percentage for the live heap. A small change is not worth stopping the world.
func (c *collector) adapt() {
	percent := garbagePercentMax
	if live := c.live(); live > 0 {
		percent = int(min(max(c.garbage*100/live, garbagePercentMin), garbagePercentMax))
	}
	if difference := percent - c.percent; max(difference, -difference)*10 >= c.percent {
		c.percent = percent
		c.set(percent)
	}
}

// liveHeap returns how many bytes the last collection has left; 0 before the first one.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
