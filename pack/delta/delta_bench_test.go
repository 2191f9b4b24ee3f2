package delta_test

import (
	"testing"

	"packhorse/pack/delta"
)

func BenchmarkNewIndex(b *testing.B) {
	base := seeded(1, 64<<10)
	index := delta.NewIndex(base)
	b.SetBytes(int64(len(base)))
	for b.Loop() {
		index.Reset(base)
	}
}

func BenchmarkCreate(b *testing.B) {
	base := seeded(1, 64<<10)
	index := delta.NewIndex(base)
	for name, target := range map[string][]byte{"edited": edit(2, base, 20), "unrelated": seeded(3, 64<<10)} {
		b.Run(name, func(b *testing.B) {
			var program []byte
			b.SetBytes(int64(len(target)))
			for b.Loop() {
				program, _ = index.Create(program[:0], target, 1<<20)
			}
			b.ReportMetric(float64(len(program)), "delta-bytes")
		})
	}
}

func BenchmarkApply(b *testing.B) {
	base := seeded(1, 64<<10)
	target := edit(2, base, 200)
	program, _ := delta.NewIndex(base).Create(nil, target, 1<<20)
	var got []byte
	b.SetBytes(int64(len(target)))
	for b.Loop() {
		var err error
		if got, err = delta.Apply(got[:0], base, program, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}
