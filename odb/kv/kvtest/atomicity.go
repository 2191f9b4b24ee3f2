package kvtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"packhorse/odb/kv"
)

const goroutines = 16

// testCounter lets many goroutines increment one key by compare-and-swap: no increment is lost, and
// each value was written once.
func testCounter(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	const each = 50
	key := []byte("counter")
	apply(t, store, func(b *kv.Batch) { b.Put(key, make([]byte, 8)) })
	var group sync.WaitGroup
	for worker := range goroutines {
		group.Go(func() {
			for done := 0; done < each; {
				now, err := store.Get(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				n := binary.BigEndian.Uint64(now)
				batch := kv.NewBatch()
				batch.Require(key, now)
				batch.RequireAbsent(fmt.Appendf(nil, "step/%08d", n+1))
				batch.Put(key, binary.BigEndian.AppendUint64(nil, n+1))
				batch.Put(fmt.Appendf(nil, "step/%08d", n+1), fmt.Append(nil, worker))
				commit, err := store.Apply(t.Context(), batch)
				if errors.Is(err, kv.ErrConflict) {
					continue
				}
				if err == nil {
					err = commit.Wait(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
				done++
			}
		})
	}
	group.Wait()
	want(t, store, "counter", string(binary.BigEndian.AppendUint64(nil, goroutines*each)))
	steps, err := collect(t.Context(), store, kv.ScanOptions{Start: []byte("step/"), End: kv.PrefixEnd([]byte("step/"))})
	if err != nil || len(steps) != goroutines*each {
		t.Errorf("%d steps, %v", len(steps), err)
	}
}

// testTransfers moves amounts between accounts, each move under preconditions on two of them, while
// snapshots sum them up: no snapshot sees half a move.
func testTransfers(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	const accounts, total = 8, 8 * 100
	account := func(i int) []byte { return fmt.Appendf(nil, "account/%d", i) }
	apply(t, store, func(b *kv.Batch) {
		for i := range accounts {
			b.Put(account(i), binary.BigEndian.AppendUint64(nil, total/accounts))
		}
	})
	var movers, readers sync.WaitGroup
	stop := make(chan struct{})
	for worker := range goroutines {
		movers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 100 {
				if err := transfer(t, store, account(random.IntN(accounts)), account(random.IntN(accounts))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if sum, err := sumUp(t, store); err != nil || sum != total {
					t.Errorf("a snapshot holds %d, %v; want %d", sum, err, total)
					return
				}
			}
		})
	}
	movers.Wait()
	close(stop)
	readers.Wait()
	if sum, err := sumUp(t, store); err != nil || sum != total {
		t.Errorf("in the end %d, %v; want %d", sum, err, total)
	}
}

// transfer moves 1 if both accounts are unchanged since it read them.
func transfer(t *testing.T, store kv.Store, from, to []byte) error {
	t.Helper()
	source, err := store.Get(t.Context(), from)
	if err != nil {
		return err
	}
	target, err := store.Get(t.Context(), to)
	if err != nil {
		return err
	}
	amount := binary.BigEndian.Uint64(source)
	if amount == 0 || string(from) == string(to) {
		return nil
	}
	batch := kv.NewBatch()
	batch.Require(from, source)
	batch.Require(to, target)
	batch.Put(from, binary.BigEndian.AppendUint64(nil, amount-1))
	batch.Put(to, binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(target)+1))
	if _, err := store.Apply(t.Context(), batch); err != nil && !errors.Is(err, kv.ErrConflict) {
		return err
	}
	return nil
}

// sumUp adds all accounts in one snapshot.
func sumUp(t *testing.T, store kv.Store) (uint64, error) {
	t.Helper()
	snapshot, err := store.Snapshot(t.Context())
	if err != nil {
		return 0, err
	}
	sum := uint64(0)
	for pair, err := range snapshot.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			return 0, errors.Join(err, snapshot.Close())
		}
		sum += binary.BigEndian.Uint64(pair.Value)
	}
	return sum, snapshot.Close()
}
