package kv_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"packhorse/odb/kv"
)

// openBench opens a store on the disk of the machine.
func openBench(b *testing.B) *kv.Pebble {
	b.Helper()
	store, err := kv.OpenPebble(b.TempDir(), kv.PebbleOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
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

// counterBatch is the shape of a small commit: a head that is required and written, and a few objects of 200 bytes.
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

// BenchmarkApply makes synced commits with a precondition: writers share one head, as those of one repository do, or have one each.
func BenchmarkApply(b *testing.B) {
	for _, shared := range []bool{true, false} {
		for _, writers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("shared=%v/writers=%d", shared, writers), func(b *testing.B) {
				benchmarkApply(b, openBench(b), shared, writers)
			})
		}
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
