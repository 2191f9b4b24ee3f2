package postgres_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"packhorse/odb/kv"
	"packhorse/odb/kv/postgres"
	"packhorse/odb/kv/postgres/postgrestest"
)

// Benchmarks run with the cluster where TMPDIR says: `TMPDIR=/var/tmp go test -bench .
// ./odb/kv/postgres` waits for the disk.

// rowBytes is the size of a value, about that of a small object.
const rowBytes = 200

// openFilled returns a store with count rows.
func openFilled(b *testing.B, count int) *postgres.Store {
	b.Helper()
	store := openHere(b, postgres.Options{URL: postgrestest.Database(b), Conns: 48})
	for start := 0; start < count; start += 10_000 {
		batch := kv.NewBatch()
		for i := start; i < min(start+10_000, count); i++ {
			batch.Put(rowKey(i), bytes.Repeat([]byte{byte(i)}, rowBytes))
		}
		if _, err := store.Apply(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	return store
}

func rowKey(i int) []byte { return fmt.Appendf(nil, "row/%08d", i) }

func BenchmarkGet(b *testing.B) {
	store := openFilled(b, 100_000)
	i := 0
	for b.Loop() {
		i = (i + 7919) % 100_000
		if _, err := store.Get(b.Context(), rowKey(i)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadKeys(b *testing.B) {
	store := openFilled(b, 100_000)
	set := kv.ReadSet{Keys: make([][]byte, 50)}
	i := 0
	for b.Loop() {
		for j := range set.Keys {
			i = (i + 7919) % 100_000
			set.Keys[j] = rowKey(i)
		}
		if _, err := store.Read(b.Context(), set); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	store := openFilled(b, 100_000)
	for _, limit := range []int{16, 1000} {
		b.Run(fmt.Sprint("limit=", limit), func(b *testing.B) {
			for b.Loop() {
				for _, err := range store.Scan(b.Context(), kv.ScanOptions{Start: rowKey(5000), Limit: limit}) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkApply applies batches of ten rows, each under a precondition on a row of its client.
func BenchmarkApply(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			store := openFilled(b, 10_000)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var group sync.WaitGroup
			for client := range clients {
				group.Go(func() {
					head := fmt.Appendf(nil, "head/%d", client)
					var last []byte
					for n := uint64(1); left.Add(-1) >= 0; n++ {
						batch := kv.NewBatch()
						if last == nil {
							batch.RequireAbsent(head)
						} else {
							batch.Require(head, last)
						}
						last = binary.BigEndian.AppendUint64(nil, n)
						batch.Put(head, last)
						for i := range 9 {
							batch.Put(fmt.Appendf(nil, "new/%d/%d/%d", client, n, i), bytes.Repeat([]byte{byte(i)}, rowBytes))
						}
						if _, err := store.Apply(b.Context(), batch); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
			b.ReportMetric(float64(store.Metrics().Retries)/float64(b.N), "retries/batch")
		})
	}
}
