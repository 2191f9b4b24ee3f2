package kv

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"

	"packhorse/pack/invariants"
)

// stripeCount is the number of stripes over which keys are spread. Two keys of one stripe share its
// guard and its list of unsynced commits: harmless, and rare while few keys are in flight.
const stripeCount = 4096

// stripes guards keys by the hash of each: an exclusive guard for keys in preconditions, a shared
// one for keys that are only written.
//
// Batches that hold the exclusive guard of a key have it to themselves between the check of a
// precondition and the application of their operations. Batches that write the key without looking
// at it hold a shared guard while they apply: they do not disturb each other, since the log orders
// them, but none can slip in between another's check and application.
type stripes struct {
	seed maphash.Seed
	list [stripeCount]stripe
}

// stripe is one fair shared-exclusive lock, and the commits to its keys that are not yet durable.
type stripe struct {
	mu        sync.Mutex // guards everything below, for a few instructions at a time
	shared    int
	exclusive bool
	queue     []*turn
	unsynced  []*commit
}

// turn is a place in a stripe's queue.
type turn struct {
	exclusive bool
	granted   chan struct{}
}

// footprint is the stripes that a batch touches.
type footprint struct {
	required stripeSet
	written  stripeSet
}

// stripeSet is a set of stripes, walked in ascending order, which is the order of acquisition.
type stripeSet [stripeCount / 64]uint64

func (s *stripeSet) add(i uint64) { s[i/64] |= 1 << (i % 64) }

func (s *stripeSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// each calls visit with every stripe of the set in ascending order until it returns false.
func (s *stripeSet) each(visit func(i int) bool) {
	for w, word := range s {
		for ; word != 0; word &= word - 1 {
			if !visit(w*64 + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}

// of returns the stripe of key.
func (s *stripes) of(key []byte) uint64 { return maphash.Bytes(s.seed, key) % stripeCount }

// footprint returns the stripes of batch. A range covers keys that it does not name, so it touches
// every stripe.
func (s *stripes) footprint(batch *Batch) *footprint {
	f := new(footprint)
	for p := range batch.Preconditions() {
		f.required.add(s.of(p.Key))
	}
	for op := range batch.Operations() {
		if op.Kind == OperationDeleteRange {
			for i := range f.written {
				f.written[i] = ^uint64(0)
			}
			break
		}
		f.written.add(s.of(op.Key))
	}
	return f
}

// lock takes the guards of f in ascending order, so that batches cannot wait for each other in a
// circle. It holds nothing when it returns an error: that of ctx, or ErrFailed when failed is
// closed.
func (s *stripes) lock(ctx context.Context, f *footprint, failed <-chan struct{}) error {
	touched := f.touched()
	var err error
	var stop int
	touched.each(func(i int) bool {
		stop = i
		err = s.list[i].acquire(ctx, f.required.has(i), failed)
		return err == nil
	})
	if err != nil {
		touched.each(func(i int) bool {
			if i < stop {
				s.list[i].release(f.required.has(i))
			}
			return i < stop
		})
	}
	return err
}

// unlock releases the stripes of f.
func (s *stripes) unlock(f *footprint) {
	touched := f.touched()
	touched.each(func(i int) bool {
		s.list[i].release(f.required.has(i))
		return true
	})
}

// checkHeld checks that no other batch can change the keys of the preconditions of batch:
// docs/invariants.md 2.
func (s *stripes) checkHeld(batch *Batch) {
	for p := range batch.Preconditions() {
		t := &s.list[s.of(p.Key)]
		t.mu.Lock()
		invariants.Check(t.exclusive && t.shared == 0,
			"kv: the precondition on %q is checked without its guard", p.Key)
		t.mu.Unlock()
	}
}

// touched is the union of the two sets.
func (f *footprint) touched() stripeSet {
	var union stripeSet
	for i := range union {
		union[i] = f.required[i] | f.written[i]
	}
	return union
}

// acquire takes the guard in the order of the calls.
func (s *stripe) acquire(ctx context.Context, exclusive bool, failed <-chan struct{}) error {
	s.mu.Lock()
	if len(s.queue) == 0 && s.grantable(exclusive) {
		s.grant(exclusive)
		s.mu.Unlock()
		return nil
	}
	t := &turn{exclusive: exclusive, granted: make(chan struct{})}
	s.queue = append(s.queue, t)
	s.mu.Unlock()

	var err error
	select {
	case <-t.granted:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-failed:
		err = ErrFailed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.queue {
		if other == t {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			s.wake()
			return err
		}
	}
	s.drop(exclusive) // granted in the meantime
	return err
}

// release gives the guard back and passes it on.
func (s *stripe) release(exclusive bool) {
	s.mu.Lock()
	s.drop(exclusive)
	s.mu.Unlock()
}

func (s *stripe) grantable(exclusive bool) bool {
	return !s.exclusive && (!exclusive || s.shared == 0)
}

func (s *stripe) grant(exclusive bool) {
	if exclusive {
		s.exclusive = true
	} else {
		s.shared++
	}
}

func (s *stripe) drop(exclusive bool) {
	if invariants.Enabled {
		invariants.Check(s.exclusive == exclusive && (s.shared > 0) != exclusive,
			"kv: a guard is given back, exclusive %t, that %d share, exclusive %t", exclusive, s.shared, s.exclusive)
	}
	if exclusive {
		s.exclusive = false
	} else {
		s.shared--
	}
	s.wake()
}

// wake grants the guard to the front of the queue as far as it can be shared.
func (s *stripe) wake() {
	n := 0
	for ; n < len(s.queue) && s.grantable(s.queue[n].exclusive); n++ {
		s.grant(s.queue[n].exclusive)
		close(s.queue[n].granted)
		s.queue[n] = nil
	}
	if n > 0 {
		s.queue = append(s.queue[:0], s.queue[n:]...)
	}
}
