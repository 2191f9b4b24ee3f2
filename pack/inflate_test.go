package pack_test

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"packhorse/pack"
)

// contents are the shapes of data that compressors treat differently.
func contents() map[string][]byte {
	random := make([]byte, 300_000)
	source := rand.New(rand.NewPCG(1, 1))
	for i := range random {
		random[i] = byte(source.Uint32())
	}
	return map[string][]byte{
		"empty":       {},
		"one byte":    {'x'},
		"text":        []byte(strings.Repeat("the packhorse carries the tree up the trail\n", 40)),
		"long text":   []byte(strings.Repeat("the packhorse carries the tree up the trail\n", 8_000)),
		"zeros":       make([]byte, 400_000),
		"random":      random,
		"window size": random[:32<<10],
	}
}

// deflated returns data as the standard library compresses it.
func deflated(tb testing.TB, data []byte, level int) []byte {
	tb.Helper()
	var out bytes.Buffer
	w, err := zlib.NewWriterLevel(&out, level)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func TestInflate(t *testing.T) {
	t.Parallel()
	for name, data := range contents() {
		for _, level := range []int{zlib.NoCompression, zlib.BestSpeed, zlib.BestCompression, zlib.HuffmanOnly} {
			t.Run(fmt.Sprintf("%s/%d", name, level), func(t *testing.T) {
				t.Parallel()
				packed := deflated(t, data, level)
				got, consumed, err := pack.Inflate([]byte("x"), append(packed, "behind"...), int64(len(data)))
				if err != nil || consumed != len(packed) || !bytes.Equal(got[1:], data) || got[0] != 'x' {
					t.Errorf("%d bytes from %d, %v; want %d from %d", len(got)-1, consumed, err, len(data), len(packed))
				}
				z := pack.NewInflater(iotest.HalfReader(bytes.NewReader(packed)))
				if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, data) {
					t.Errorf("Inflater: %d bytes, %v", len(got), err)
				}
				if n, err := z.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
					t.Errorf("Inflater behind its end: %d, %v", n, err)
				}
				if err := z.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestInflateCorrupt(t *testing.T) {
	t.Parallel()
	data := []byte(strings.Repeat("corrupt me ", 30))
	good := deflated(t, data, 6)
	for cut := range good {
		if got, _, err := pack.Inflate(nil, good[:cut], int64(len(data))); !errors.Is(err, pack.ErrCorrupt) || len(got) > 0 {
			t.Errorf("cut off at %d: error %v", cut, err)
		}
		if _, err := io.ReadAll(pack.NewInflater(bytes.NewReader(good[:cut]))); !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("Inflater, cut off at %d: error %v", cut, err)
		}
	}
	for bit := range 8 * len(good) {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		got, _, err := pack.Inflate(nil, bad, int64(len(data)))
		if err == nil && bytes.Equal(got, data) {
			continue // a few bits mean nothing: the level in the header, the padding behind the last block
		}
		if !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("bit %d flipped: error %v", bit, err)
		}
	}
	for _, size := range []int64{0, int64(len(data)) - 1, int64(len(data)) + 1, 1 << 40} {
		got, _, err := pack.Inflate(nil, good, size)
		if !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("stated size %d: error %v", size, err)
		}
		if cap(got) > 2<<20 {
			t.Errorf("stated size %d: %d bytes allocated", size, cap(got))
		}
	}
}

func TestInflaterPassesErrorsOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	good := deflated(t, []byte("content"), 6)
	for cut := range good {
		src := io.MultiReader(bytes.NewReader(good[:cut]), iotest.ErrReader(broken))
		if _, err := io.ReadAll(pack.NewInflater(src)); !errors.Is(err, broken) || errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("broken at %d: error %v", cut, err)
		}
	}
}

func TestDeflate(t *testing.T) {
	t.Parallel()
	for name, data := range contents() {
		for level := pack.LevelStore; level <= pack.LevelBest; level++ {
			t.Run(fmt.Sprintf("%s/%d", name, level), func(t *testing.T) {
				t.Parallel()
				packed := pack.Deflate([]byte("x"), data, level)
				if !bytes.Equal(pack.Deflate(nil, data, level), packed[1:]) {
					t.Error("a second stream differs")
				}
				r, err := zlib.NewReader(bytes.NewReader(packed[1:]))
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		}
	}
}

func BenchmarkInflate(b *testing.B) {
	for name, data := range contents() {
		packed := deflated(b, data, 6)
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, 0, len(data)+1)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := pack.Inflate(dst, packed, int64(len(data))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDeflate(b *testing.B) {
	for name, data := range contents() {
		for _, level := range []int{pack.LevelFast, pack.LevelDefault} {
			b.Run(fmt.Sprintf("%s/%d", name, level), func(b *testing.B) {
				var dst []byte
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					dst = pack.Deflate(dst[:0], data, level)
				}
				b.ReportMetric(float64(len(dst)), "packed-bytes")
			})
		}
	}
}
