package main

import (
	"runtime"
	"slices"
	"testing"
)

// TestCollector checks how much garbage may gather beside a live heap.
func TestCollector(t *testing.T) {
	t.Parallel()
	const garbage = 128 << 20
	var live int64
	var set []int
	c := &collector{
		garbage: garbage,
		live:    func() int64 { return live },
		set:     func(percent int) int { set = append(set, percent); return 0 },
	}
	for _, live = range []int64{
		0,          // nothing is known before the first collection
		10 << 20,   // 20 MiB, not 128
		100 << 20,  // 128 MiB
		105 << 20,  // about the same: left
		150 << 20,  // 128 MiB
		500 << 20,  // 200 MiB
		2000 << 20, // 800 MiB
		100 << 20,
	} {
		c.adapt()
	}
	if want := []int{200, 128, 85, 40, 128}; !slices.Equal(set, want) {
		t.Errorf("the percentages are %v, want %v", set, want)
	}
}

// TestCollectorFollows checks that every collection is followed by the next decision.
func TestCollectorFollows(t *testing.T) {
	t.Parallel()
	var live int64
	set := make(chan int, 1)
	c := &collector{
		garbage: 100,
		live:    func() int64 { live++; return 50 * live }, // 200 %, 100 %, 66 %, 50 %
		set:     func(percent int) int { set <- percent; return 0 },
	}
	defer c.stop()
	go c.start()
	for _, want := range []int{200, 100, 66, 50} {
		if got := <-set; got != want {
			t.Fatalf("%d %%, want %d", got, want)
		}
		runtime.GC()
	}
}
