package cache_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/file/cache"
	"packhorse/odb/file/s3/s3test"
)

// pieceBytes is how much a clone reads at a time.
const pieceBytes = 256 << 10

// readForward reads a file as a clone does.
func readForward(b *testing.B, store file.Store, name string, piece []byte) {
	b.Helper()
	f, err := store.Open(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	for at := int64(0); at < f.Size(); at += int64(len(piece)) {
		if _, err := f.ReadAt(b.Context(), piece[:min(int64(len(piece)), f.Size()-at)], at); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkWarm reads a file of 120 MB forward, and pieces of 4 KiB at random, from a folder and
// from a warm cache over it.
func BenchmarkWarm(b *testing.B) {
	dir, err := file.OpenDir(b.TempDir(), file.DirOptions{})
	if err != nil {
		b.Fatal(err)
	}
	data := sample(1, 120_000_000)
	put(b, dir, "a", data)
	stores := map[string]file.Store{"dir": dir, "cache": open(b, b.TempDir(), cache.Options{Store: dir})}
	for name, store := range stores {
		b.Run("forward/"+name, func(b *testing.B) {
			piece := make([]byte, pieceBytes)
			readForward(b, store, "a", piece)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				readForward(b, store, "a", piece)
			}
		})
		b.Run("random/"+name, func(b *testing.B) {
			f := get(b, store, "a")
			piece := make([]byte, 4096)
			at := int64(0)
			for b.Loop() {
				at = (at*6364136223846793005 + 1442695040888963407) & (1<<62 - 1)
				if _, err := f.ReadAt(b.Context(), piece, at%(int64(len(data))-4096)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCold reads a file of 120 MB forward out of a bucket whose answers take 60 ms, with an
// empty cache, and reports when its first byte is there.
func BenchmarkCold(b *testing.B) {
	server := s3test.Start(b)
	options := server.Options(b)
	plain := s3test.Open(b, options)
	put(b, plain, "a", sample(1, 120_000_000))
	options.Dir = b.TempDir()
	options.Endpoint = server.Proxy(b, func(service http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(60 * time.Millisecond)
			service.ServeHTTP(w, r)
		})
	})
	var requests atomic.Int64
	options.Request = func(time.Duration) { requests.Add(1) }
	bucket := s3test.Open(b, options)
	piece := make([]byte, pieceBytes)
	b.SetBytes(120_000_000)
	var first time.Duration
	before := requests.Load()
	for b.Loop() {
		store, err := cache.Open(b.TempDir(), cache.Options{Store: bucket})
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		f := get(b, store, "a")
		if _, err := f.ReadAt(b.Context(), piece, 0); err != nil {
			b.Fatal(err)
		}
		first += time.Since(began)
		readForward(b, store, "a", piece)
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
		if err := cache.CloseAlone(store); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(first.Milliseconds())/float64(b.N), "ms-first")
	b.ReportMetric(float64(requests.Load()-before)/float64(b.N), "requests")
}
