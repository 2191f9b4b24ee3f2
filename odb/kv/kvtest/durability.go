package kvtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"packhorse/odb/kv"
)

func testWaitDurable(t *testing.T, h Harness) {
	t.Helper()
	store := h.open(t)
	if err := store.WaitDurable(t.Context(), []byte("never written")); err != nil {
		t.Error(err)
	}
	batch := kv.NewBatch()
	batch.Put([]byte("a"), []byte("1"))
	batch.DeleteRange([]byte("b"), []byte("c"))
	commit, err := store.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "bbb", "never written", ""} {
		if err := store.WaitDurable(t.Context(), []byte(key)); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	if err := commit.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.WaitDurable(canceled, []byte("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if err := commit.Wait(canceled); err != nil {
		t.Errorf("a commit that is durable does not ask the context: %v", err)
	}
}

// testCrash applies batches one after another and cuts the power at any time. The recovered state
// is that after one of them, not earlier than the last one known to be durable.
func testCrash(t *testing.T, h Harness) {
	t.Helper()
	if h.Crash == nil {
		t.Skip("this store cannot crash")
	}
	random := rand.New(rand.NewPCG(11, 12))
	store := h.open(t)
	states := []map[string]string{{}} // after each batch
	for life := range 6 {
		durable := 0
		for range random.IntN(60) {
			batch, next := randomBatch(random, len(states), states[len(states)-1])
			commit, err := store.Apply(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, next)
			if random.IntN(4) > 0 {
				continue
			}
			if err := commit.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			durable = len(states) - 1
		}
		store = h.Crash(t, store)
		survived := contents(t, store)
		at := 0
		for at < len(states) && !maps.Equal(states[at], survived) {
			at++
		}
		if at == len(states) || at < durable {
			t.Fatalf("life %d: found the state %d of %d, %d was durable", life, at, len(states)-1, durable)
		}
		states = []map[string]string{survived}
	}
}

// randomBatch returns a batch and the state after it, which its number makes unique.
func randomBatch(random *rand.Rand, number int, state map[string]string) (*kv.Batch, map[string]string) {
	next := maps.Clone(state)
	batch := kv.NewBatch()
	put := func(key, value string) {
		batch.Put([]byte(key), []byte(value))
		next[key] = value
	}
	if random.IntN(5) == 0 {
		start, end := fmt.Sprint("key/", random.IntN(30)), fmt.Sprint("key/", random.IntN(30))
		batch.DeleteRange([]byte(start), []byte(end))
		maps.DeleteFunc(next, func(key, _ string) bool { return key >= start && key < end })
	}
	for range random.IntN(8) {
		size := random.IntN(200) << (random.IntN(3) * 4)
		put(fmt.Sprint("key/", random.IntN(30)), string(bytes.Repeat([]byte{byte('a' + number%26)}, size)))
	}
	put("number", fmt.Sprint(number, random.Uint64()))
	return batch, next
}

// contents returns all pairs.
func contents(t *testing.T, store kv.Store) map[string]string {
	t.Helper()
	pairs := make(map[string]string)
	for pair, err := range store.Scan(t.Context(), kv.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		pairs[string(pair.Key)] = string(pair.Value)
	}
	return pairs
}

// testCrashWaitDurable has writers that never wait, and readers that record their reads after
// WaitDurable. Recorded reads must survive the crash.
func testCrashWaitDurable(t *testing.T, h Harness) {
	t.Helper()
	if h.Crash == nil {
		t.Skip("this store cannot crash")
	}
	store := h.open(t)
	const keys = 4
	key := func(i int) []byte { return fmt.Appendf(nil, "head/%d", i) }
	var told [keys]uint64
	var mu sync.Mutex // guards told
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for i := range keys {
		writers.Go(func() {
			for n := range uint64(300) {
				batch := kv.NewBatch()
				if n > 0 {
					batch.Require(key(i), binary.BigEndian.AppendUint64(nil, n))
				}
				batch.Put(key(i), binary.BigEndian.AppendUint64(nil, n+1))
				if _, err := store.Apply(t.Context(), batch); err != nil {
					t.Error(err)
					return
				}
			}
		})
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				value, err := store.Get(t.Context(), key(i))
				if errors.Is(err, kv.ErrNotFound) {
					continue
				}
				if err == nil {
					err = store.WaitDurable(t.Context(), key(i))
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				told[i] = max(told[i], binary.BigEndian.Uint64(value))
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	after := h.Crash(t, store)
	for i, n := range told {
		value, err := after.Get(t.Context(), key(i))
		if n > 0 && (err != nil || binary.BigEndian.Uint64(value) < n) {
			t.Errorf("%s: %d was told, found %x, %v", key(i), n, value, err)
		}
	}
}
