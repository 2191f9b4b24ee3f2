package bench_test

import (
	"fmt"
	"testing"
)

// BenchmarkPush pushes a whole history into an empty repository: the pack is read, resolved,
// checked, indexed, and synced.
func BenchmarkPush(b *testing.B) {
	h := openHistory(b)
	host := openHost(b, false)
	b.SetBytes(int64(len(h.pack)))
	number := 0
	for b.Loop() {
		h.push(b, host, fmt.Sprint("r", number))
		number++
	}
}
