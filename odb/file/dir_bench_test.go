package file_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"packhorse/odb/file"
)

// BenchmarkWriter writes files of several sizes in pieces of 32 KiB and seals them.
func BenchmarkWriter(b *testing.B) {
	random := rand.NewChaCha8([32]byte{1})
	piece := make([]byte, 32<<10)
	_, _ = random.Read(piece)
	for _, size := range []int{32 << 10, 1 << 20, 128 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			dir, err := file.OpenDir(b.TempDir(), file.DirOptions{})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			for i := range b.N {
				w, err := dir.Create(b.Context(), fmt.Sprintf("f%d", i))
				if err != nil {
					b.Fatal(err)
				}
				for range size / len(piece) {
					if _, err := w.Write(piece); err != nil {
						b.Fatal(err)
					}
				}
				if err := w.Seal(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := dir.Delete(b.Context(), fmt.Sprintf("f%d", i)); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			if err := dir.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkScratch writes and reads back 8 MiB, as a spooled delta base does.
func BenchmarkScratch(b *testing.B) {
	dir, err := file.OpenDir(b.TempDir(), file.DirOptions{})
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 8<<20)
	b.SetBytes(int64(len(data)))
	for range b.N {
		s, err := dir.Scratch(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Write(data); err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, io.NewSectionReader(s, 0, s.Size())); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	if err := dir.Close(); err != nil {
		b.Fatal(err)
	}
}
