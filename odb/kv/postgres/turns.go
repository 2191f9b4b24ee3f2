package postgres

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"packhorse/odb/kv"
)

// turnsMax bounds the keys for which a batch waits here. Those of larger batches meet in the
// database.
const turnsMax = 128

// turns lets batches of this process with a common key pass one after the other, in the order of
// their arrival. It spares them the conflicts that they would meet in the database, which decides
// alone: nothing is wrong without it.
type turns struct {
	seed maphash.Seed
	mu   sync.Mutex // guards busy, and the queues in it
	busy map[uint64]*queue
}

// queue is who waits for a key that somebody has.
type queue struct{ waiting []chan struct{} }

// keysOf returns the hashes of the first keys of a batch, ascending, those of its preconditions
// first of all.
func (t *turns) keysOf(batch *kv.Batch) []uint64 {
	hashes := make([]uint64, 0, min(batch.Count(), turnsMax))
	for p := range batch.Preconditions() {
		if len(hashes) == turnsMax {
			break
		}
		hashes = append(hashes, maphash.Bytes(t.seed, p.Key))
	}
	for op := range batch.Operations() {
		if len(hashes) == turnsMax {
			break
		}
		if op.Kind != kv.OperationDeleteRange {
			hashes = append(hashes, maphash.Bytes(t.seed, op.Key))
		}
	}
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

// take waits for all keys, in ascending order, so that batches cannot wait for each other in a
// circle. It holds nothing when it returns the error of ctx.
func (t *turns) take(ctx context.Context, keys []uint64) error {
	for i, key := range keys {
		if err := t.takeOne(ctx, key); err != nil {
			t.give(keys[:i])
			return err
		}
	}
	return nil
}

func (t *turns) takeOne(ctx context.Context, key uint64) error {
	t.mu.Lock()
	q, busy := t.busy[key]
	if !busy {
		if t.busy == nil {
			t.busy = make(map[uint64]*queue)
		}
		t.busy[key] = new(queue)
		t.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	q.waiting = append(q.waiting, granted)
	t.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	at := slices.Index(q.waiting, granted)
	if at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 { // granted in the meantime
		t.give([]uint64{key})
	}
	return ctx.Err()
}

// give passes the keys on.
func (t *turns) give(keys []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		q := t.busy[key]
		if len(q.waiting) == 0 {
			delete(t.busy, key)
			continue
		}
		close(q.waiting[0])
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
}
