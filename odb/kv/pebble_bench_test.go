package kv_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"packhorse/odb/kv"
)

// openBench opens a store on the disk of the machine, whose syncs take longer by delay.
func openBench(b *testing.B, delay time.Duration) *kv.Pebble {
	b.Helper()
	fs := vfs.Default
	if delay > 0 {
		fs = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if isSync(op.Kind) && strings.HasSuffix(op.Path, ".log") {
				time.Sleep(delay)
			}
			return nil
		}))
	}
	store, err := kv.OpenPebble(b.TempDir(), kv.PebbleOptions{FS: fs, Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	return store
}

// counterBatch is the shape of a small commit: a head that is required and written, and a few
// objects of 200 bytes.
func counterBatch(head []byte, n uint64, writer int) *kv.Batch {
	batch := kv.NewBatch()
	if n == 0 {
		batch.RequireAbsent(head)
	} else {
		batch.Require(head, binary.BigEndian.AppendUint64(nil, n))
	}
	batch.Put(head, binary.BigEndian.AppendUint64(nil, n+1))
	for i := range 5 {
		batch.Put(fmt.Appendf(nil, "object/%d/%s/%d/%d", writer, head, n, i), make([]byte, 200))
	}
	return batch
}

// BenchmarkApply makes synced commits with a precondition: writers share one head, as those of one
// repository do, or have one each.
func BenchmarkApply(b *testing.B) {
	for _, shared := range []bool{true, false} {
		for _, writers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("shared=%v/writers=%d", shared, writers), func(b *testing.B) {
				benchmarkApply(b, openBench(b, 0), shared, writers)
			})
		}
	}
}

// BenchmarkApplySlowSync adds 5 ms to each sync: group commit must make up for it.
func BenchmarkApplySlowSync(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			benchmarkApply(b, openBench(b, 5*time.Millisecond), true, writers)
		})
	}
}

func benchmarkApply(b *testing.B, store kv.Store, shared bool, writers int) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var turn sync.Mutex // the queue of a repository, as package refs has it
	var sequence uint64
	var group sync.WaitGroup
	b.ResetTimer()
	for writer := range writers {
		group.Go(func() {
			head, own := fmt.Appendf(nil, "head/%d", writer), uint64(0)
			for left.Add(-1) >= 0 {
				var commit kv.Commit
				var err error
				if shared {
					turn.Lock()
					commit, err = store.Apply(b.Context(), counterBatch([]byte("head"), sequence, writer))
					sequence++
					turn.Unlock()
				} else {
					commit, err = store.Apply(b.Context(), counterBatch(head, own, writer))
					own++
				}
				if err == nil {
					err = commit.Wait(b.Context())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

// BenchmarkApplyLarge commits 1,000 objects of 200 bytes under one precondition, as a small push
// does.
func BenchmarkApplyLarge(b *testing.B) {
	store := openBench(b, 0)
	value := make([]byte, 200)
	for i := range b.N {
		batch := kv.NewBatch()
		batch.RequireAbsent(fmt.Appendf(nil, "head/%d", i))
		for range 1000 {
			batch.Put(randomKey(), value)
		}
		commit, err := store.Apply(b.Context(), batch)
		if err == nil {
			err = commit.Wait(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// randomKey looks like the key of an object.
func randomKey() []byte {
	key := append(make([]byte, 0, 37), "o0123456789abcdef"...)
	for range 5 {
		key = binary.BigEndian.AppendUint32(key, rand.Uint32())
	}
	return key
}

// fillBench stores count objects of 300 bytes and returns their keys.
func fillBench(b *testing.B, store kv.Store, count int) [][]byte {
	b.Helper()
	var keys [][]byte
	value := make([]byte, 300)
	for len(keys) < count {
		batch := kv.NewBatch()
		for range 1000 {
			key := randomKey()
			binary.BigEndian.PutUint64(value, rand.Uint64())
			batch.Put(key, value)
			keys = append(keys, key)
		}
		if _, err := store.Apply(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	return keys
}

func BenchmarkGet(b *testing.B) {
	store := openBench(b, 0)
	keys := fillBench(b, store, 300_000)
	b.Run("present", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			if _, err := store.Get(b.Context(), keys[i%len(keys)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("absent", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := store.Get(b.Context(), randomKey()); err == nil {
				b.Fatal("found")
			}
		}
	})
	b.Run("durable", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			if err := store.WaitDurable(b.Context(), keys[i%len(keys)]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkScan(b *testing.B) {
	store := openBench(b, 0)
	fillBench(b, store, 300_000)
	for _, limit := range []int{1, 20, 5000, 100_000} {
		for _, reverse := range []bool{false, true} {
			b.Run(fmt.Sprintf("limit=%d/reverse=%v", limit, reverse), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					count := 0
					for _, err := range store.Scan(b.Context(), kv.ScanOptions{Limit: limit, Reverse: reverse}) {
						if err != nil {
							b.Fatal(err)
						}
						count++
					}
					if count != limit {
						b.Fatal(count)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*limit), "ns/pair")
			})
		}
	}
}
