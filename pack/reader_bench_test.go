package pack_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"packhorse/pack"
)

// benchPack returns the pack that PACKHORSE_BENCH_PACK names, or one made of a seeded history.
func benchPack(b *testing.B) []byte {
	b.Helper()
	name := os.Getenv("PACKHORSE_BENCH_PACK")
	if name == "" {
		return seededPack(b, 400)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// BenchmarkReader reads a pack from memory to its end; MB/s refer to the pack, not to its inflated
// size.
func BenchmarkReader(b *testing.B) {
	data := benchPack(b)
	variants := map[string]pack.ReaderOptions{
		"alone": {},
		"raw":   {Raw: io.Discard},
	}
	for name, options := range variants {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				scan(b, data, options)
			}
		})
	}
}

func scan(tb testing.TB, data []byte, options pack.ReaderOptions) {
	tb.Helper()
	r := pack.NewReader(bytes.NewReader(data), options)
	for {
		_, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkReaderSmall reads a pack of one small commit, the usual push.
func BenchmarkReaderSmall(b *testing.B) {
	data := seededPack(b, 1)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		scan(b, data, pack.ReaderOptions{})
	}
}
