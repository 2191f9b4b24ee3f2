package bench_test

import (
	"fmt"
	"testing"

	"packhorse/engine/pathpolicy"
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

// BenchmarkPushProtected is BenchmarkPush by a token that protects a path. Everything is new, so
// all folders of the tip are opened.
func BenchmarkPushProtected(b *testing.B) {
	paths, err := pathpolicy.Parse([][]any{{".github/**", []any{string(pathpolicy.NoWrite)}}})
	if err != nil {
		b.Fatal(err)
	}
	actor := bencher
	actor.Paths = paths
	h := openHistory(b)
	host := openHost(b, false)
	b.SetBytes(int64(len(h.pack)))
	number := 0
	for b.Loop() {
		h.pushAs(b, &actor, host, fmt.Sprint("r", number))
		number++
	}
}
