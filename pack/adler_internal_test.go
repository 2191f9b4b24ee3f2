package pack

import (
	"hash/adler32"
	"math/rand/v2"
	"testing"
)

func TestAdlerAgreesWithStandardLibrary(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 3*adlerRun+17)
	for i := range data {
		data[i] = byte(random.Uint32()) | 0xf0 // large sums overflow first
	}
	for _, size := range []int{0, 1, 7, 8, 9, 255, adlerRun - 1, adlerRun, adlerRun + 1, len(data)} {
		want := adler32.Checksum(data[:size])
		if got := updateAdler(1, data[:size]); got != want {
			t.Errorf("%d bytes: %08x, want %08x", size, got, want)
		}
		for _, cut := range []int{0, size / 3, size} {
			first, second := updateAdler(1, data[:cut]), updateAdler(1, data[cut:size])
			if got := combineAdler(first, second, int64(size-cut)); got != want {
				t.Errorf("%d bytes combined at %d: %08x, want %08x", size, cut, got, want)
			}
			if got := updateAdler(first, data[cut:size]); got != want {
				t.Errorf("%d bytes continued at %d: %08x, want %08x", size, cut, got, want)
			}
		}
	}
}

func BenchmarkAdler(b *testing.B) {
	data := make([]byte, 64<<10)
	b.Run("own", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			updateAdler(1, data)
		}
	})
	b.Run("standard", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			adler32.Checksum(data)
		}
	})
}
