package delta_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"packhorse/pack/delta"
)

// seeded returns size bytes that do not repeat.
func seeded(seed uint64, size int) []byte {
	random := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// edit returns data with count pieces replaced, removed, moved or inserted.
func edit(seed uint64, data []byte, count int) []byte {
	random := rand.New(rand.NewPCG(seed, 2))
	out := bytes.Clone(data)
	for range count {
		at := random.IntN(len(out))
		end := min(len(out), at+random.IntN(200))
		piece := seeded(random.Uint64(), random.IntN(200))
		if random.IntN(3) == 0 {
			from := random.IntN(len(out))
			piece = bytes.Clone(out[from:min(len(out), from+300)])
		}
		out = append(out[:at:at], append(piece, out[end:]...)...)
	}
	return out
}

func TestCreate(t *testing.T) {
	t.Parallel()
	text := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog\n"), 500)
	random := seeded(1, 100_000)
	tests := map[string]struct {
		base, target []byte
		sizeMax      int // of the delta
	}{
		"same":                   {random, random, 32},
		"both empty":             {nil, nil, 2},
		"empty base":             {nil, []byte("target"), 9},
		"empty target":           {random, nil, 4},
		"short":                  {[]byte("short"), []byte("shirt"), 8},
		"one block":              {random[:16], random[:16], 4},
		"a byte before a block":  {random[:15], random[:15], 18},
		"a few edits":            {random, edit(3, random, 10), 3000},
		"many edits":             {random, edit(4, random, 300), 60_000},
		"repetitive":             {text, text[7:], 40},
		"repetitive and grown":   {text, append(bytes.Clone(text), text...), 60},
		"zeros":                  {make([]byte, 1<<20), make([]byte, 1<<20-5), 100},
		"halves swapped":         {random, append(bytes.Clone(random[50_000:]), random[:50_000]...), 32},
		"unaligned":              {random, random[12_345:], 24},
		"inserted at front":      {random, append([]byte("front"), random...), 32},
		"copy longer than 64 KB": {random, random, 32},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			index := delta.NewIndex(test.base)
			program, ok := index.Create([]byte("x"), test.target, test.sizeMax)
			if !ok {
				longer, _ := index.Create(nil, test.target, len(test.target)*2+16)
				t.Fatalf("the delta takes %d bytes, more than %d", len(longer), test.sizeMax)
			}
			got, err := delta.Apply(nil, test.base, program[1:], int64(len(test.target)))
			if err != nil || !bytes.Equal(got, test.target) {
				t.Errorf("applied: %d bytes of %d, %v", len(got), len(test.target), err)
			}
			again, _ := delta.NewIndex(test.base).Create(nil, test.target, math.MaxInt)
			if !bytes.Equal(again, program[1:]) {
				t.Error("a second delta differs")
			}
			// One byte less than needed is refused.
			if short, ok := index.Create([]byte("x"), test.target, len(again)-1); ok || string(short) != "x" {
				t.Errorf("a delta of %d bytes passes a limit of %d", len(short)-1, len(again)-1)
			}
		})
	}
}

// TestBetween has one index for all pairs, as its memory is used again.
func TestBetween(t *testing.T) {
	t.Parallel()
	text := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog\n"), 500)
	random := seeded(1, 100_000)
	var index delta.Index
	for name, test := range map[string]struct {
		base, target []byte
		sizeMax      int // of the delta
	}{
		"same":                  {random, random, 32},
		"both empty":            {nil, nil, 2},
		"empty base":            {nil, []byte("target"), 9},
		"empty target":          {random, nil, 4},
		"short":                 {[]byte("short"), []byte("shirt"), 8},
		"a byte before a block": {random[:15], random[:15], 18},
		"a few edits":           {random, edit(3, random, 10), 3000},
		"many edits":            {random, edit(4, random, 300), 60_000},
		"repetitive":            {text, text[7:], 40},
		"repetitive and grown":  {text, append(bytes.Clone(text), text...), 60},
		"repetitive and shrunk": {append(bytes.Clone(text), text...), text, 60},
		"zeros":                 {make([]byte, 1<<20), make([]byte, 1<<20-5), 100},
		"ends overlap":          {random[:100], append(bytes.Clone(random[:60]), random[40:100]...), 40},
		"inserted in the midst": {random, append(append(bytes.Clone(random[:50_000]), "midst"...), random[50_000:]...), 40},
		"removed in the midst":  {random, append(bytes.Clone(random[:50_000]), random[60_000:]...), 32},
		"moved in the midst": {random, append(
			append(append(bytes.Clone(random[:30_000]), random[60_000:70_000]...), random[30_000:60_000]...), random[70_000:]...,
		), 48},
		"inserted at front":   {random, append([]byte("front"), random...), 32},
		"inserted at the end": {random, append(bytes.Clone(random), "end"...), 32},
	} {
		program, ok := index.Between([]byte("x"), test.base, test.target, test.sizeMax)
		if !ok {
			longer, _ := index.Between(nil, test.base, test.target, math.MaxInt)
			t.Errorf("%s: the delta takes %d bytes, more than %d", name, len(longer), test.sizeMax)
			continue
		}
		got, err := delta.Apply(nil, test.base, program[1:], int64(len(test.target)))
		if err != nil || !bytes.Equal(got, test.target) {
			t.Errorf("%s: applied: %d bytes of %d, %v", name, len(got), len(test.target), err)
		}
		// One byte less than needed is refused.
		if short, ok := index.Between([]byte("x"), test.base, test.target, len(program)-2); ok || string(short) != "x" {
			t.Errorf("%s: a delta of %d bytes passes a limit of %d", name, len(short)-1, len(program)-2)
		}
	}
}

func TestIndexReset(t *testing.T) {
	t.Parallel()
	index := delta.NewIndex(seeded(1, 100_000))
	for _, size := range []int{50_000, 3, 200_000, 0} {
		base := seeded(uint64(size), size)
		target := append(bytes.Clone(base), "more"...)
		index.Reset(base)
		program, ok := index.Create(nil, target, size+64)
		want, _ := delta.NewIndex(base).Create(nil, target, size+64)
		if !ok || !bytes.Equal(program, want) {
			t.Errorf("base of %d bytes: the delta differs from that of a new index", size)
		}
	}
}

// TestSparseIndex has a base with more blocks than an index holds.
func TestSparseIndex(t *testing.T) {
	t.Parallel()
	base := seeded(5, 17<<20)
	target := bytes.Clone(base[9<<20 : 12<<20])
	program, ok := delta.NewIndex(base).Create(nil, target, 1024)
	if !ok {
		t.Fatal("no delta")
	}
	if got, err := delta.Apply(nil, base, program, int64(len(target))); err != nil || !bytes.Equal(got, target) {
		t.Errorf("applied: %d bytes, %v", len(got), err)
	}
}
