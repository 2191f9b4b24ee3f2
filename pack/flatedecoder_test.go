package pack_test

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"packhorse/pack"
)

// deflateContents are contents that make deflaters use all they have.
func deflateContents() map[string][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 70_000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	skewed := make([]byte, 50_000) // codes of many sizes
	for i := range skewed {
		skewed[i] = byte(min(random.ExpFloat64()*12, 255))
	}
	var text bytes.Buffer
	for i := range 3000 {
		fmt.Fprintf(&text, "line %d of a text in which %x comes up\n", i%700, random.IntN(1000))
	}
	var periods bytes.Buffer // matches that overlap themselves
	for n := 1; n < 40; n++ {
		periods.Write(bytes.Repeat(noise[:n], 3+random.IntN(300/n)))
	}
	return map[string][]byte{
		"nothing": {},
		"a byte":  {7},
		"short":   []byte("short text, short text"),
		"zeros":   make([]byte, 100_000),
		"noise":   noise,
		"skewed":  skewed,
		"text":    text.Bytes(),
		"periods": periods.Bytes(),
		"far":     append(append(bytes.Clone(noise[:32_000]), make([]byte, 700)...), noise[:32_000]...),
	}
}

func TestInflateIntoMemory(t *testing.T) {
	t.Parallel()
	for name, content := range deflateContents() {
		for _, level := range []int{
			zlib.HuffmanOnly, zlib.NoCompression, zlib.BestSpeed, zlib.DefaultCompression, zlib.BestCompression,
		} {
			t.Run(fmt.Sprintf("%s, level %d", name, level), func(t *testing.T) {
				t.Parallel()
				packed := deflated(t, content, level)
				// Bytes after the stream, or their absence, must make no difference.
				for _, rest := range []int{0, 1, 7, 8, 100} {
					got, consumed, err := pack.Inflate([]byte("front"), append(bytes.Clone(packed), make([]byte, rest)...),
						int64(len(content)))
					if err != nil || consumed != len(packed) || string(got) != "front"+string(content) {
						t.Fatalf("%d bytes of %d from %d of %d, %v", len(got)-5, len(content), consumed, len(packed), err)
					}
				}
				for _, size := range []int{max(len(content)-1, 0), len(content) + 1, len(content) + 400} {
					if _, _, err := pack.Inflate(nil, packed, int64(size)); size != len(content) && !errors.Is(err, pack.ErrCorrupt) {
						t.Errorf("%d bytes taken for %d: %v", len(content), size, err)
					}
				}
				for cut := 0; cut < len(packed); cut += 1 + len(packed)/150 {
					if _, _, err := pack.Inflate(nil, packed[:cut], int64(len(content))); !errors.Is(err, io.ErrUnexpectedEOF) {
						t.Fatalf("cut at %d of %d: %v", cut, len(packed), err)
					}
				}
			})
		}
	}
}

// TestInflateJudgesAsZlib breaks streams and compares the results with the standard library.
func TestInflateJudgesAsZlib(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for name, content := range deflateContents() {
		for range 300 {
			level := random.IntN(12) - 2
			if level > zlib.BestCompression {
				level = zlib.BestSpeed
			}
			part := content[:min(len(content), 1+random.IntN(3000))]
			packed := deflated(t, part, level)
			packed[2+random.IntN(min(len(packed)-2, 100))] ^= 1 << random.IntN(8)
			got, _, err := pack.Inflate(nil, packed, int64(len(part)))
			want, wantErr := unzlib(packed)
			if fits := wantErr == nil && len(want) == len(part); fits != (err == nil) || fits && !bytes.Equal(got, want) {
				t.Fatalf("%s: %d bytes and %v, not %d and %v, from %x", name, len(got), err, len(want), wantErr, packed)
			}
		}
	}
}

func unzlib(packed []byte) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
