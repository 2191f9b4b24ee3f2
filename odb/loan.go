package odb

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"packhorse/odb/fair"
	"packhorse/odb/file"
	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// loan is the cache entry of a visibility set. The set is computed on the first request for an ID
// that no ref or readable object names.
type loan struct {
	layers map[segment.LayerID]struct{} // that the fork borrowed; with tips they determine the set
	tips   idList                       // of the fork; empty if the file held the computed set
	set    atomic.Pointer[borrowedSet]

	// The fields below are guarded by mu of loans.
	auxiliary segment.LayerID
	size      int               // about its memory in bytes
	found     uint64            // increases with each computed set
	leads     []segment.LayerID // layers whose latest loan it is, or was
	place     *list.Element     // in used; nil: evicted
	flight    *loanFlight       // that computes the set; nil: none
}

// loanFlight is the computation of a set for all requests that wait for it. It is cancelled when
// the last of them gives up.
type loanFlight struct {
	askers int  // guarded by mu of loans
	landed bool // guarded by mu of loans
	cancel context.CancelFunc

	done chan struct{} // closed when the fields below are set
	set  *borrowedSet
	err  error
}

// ready returns the set if it is known, else nil.
func (l *loan) ready() *borrowedSet { return l.set.Load() }

// loans caches recently used visibility sets within a budget, and computes each one once.
type loans struct {
	bytesMax int
	turns    *fair.Queue   // of the walks, among owners
	awaited  atomic.Int64  // requests that wait for a set
	walks    atomic.Uint64 // begun walks
	grown    atomic.Uint64 // those of them that began with another set

	mu     sync.Mutex // guards the fields below
	known  map[segment.LayerID]*loan
	used   *list.List                // of *loan, most recently used first
	latest map[segment.LayerID]*loan // by borrowed layer, the last computed one
	bytes  int
	found  uint64
}

const (
	// loanWalkMax is the number of concurrent visibility walks, and loanWalkOwnerMax that of one
	// owner. Each takes 16 MiB for objects and reads on two cores.
	loanWalkMax, loanWalkOwnerMax = 3, 2
	// loanOverhead is about the memory of a loan besides its lists, and loanLayerOverhead that of each
	// of its layers.
	loanOverhead, loanLayerOverhead = 512, 64
)

func newLoans(bytesMax int) *loans {
	return &loans{
		bytesMax: bytesMax,
		turns: fair.NewQueue(fair.Options{
			Capacity: loanWalkMax, Share: loanWalkOwnerMax, Waiting: math.MaxInt, Wait: math.MaxInt64,
		}),
		known: make(map[segment.LayerID]*loan), used: list.New(), latest: make(map[segment.LayerID]*loan),
	}
}

// find returns the loan of an auxiliary file of a pool.
func (l *loans) find(ctx context.Context, s *Store, pool PoolID, of *lending) (*loan, error) {
	l.mu.Lock()
	found := l.known[of.auxiliary]
	if found != nil {
		l.used.MoveToFront(found.place)
	}
	l.mu.Unlock()
	if found != nil {
		return found, nil
	}
	set, err := s.readBorrowed(ctx, pool, of.auxiliary)
	if err != nil {
		return nil, err
	}
	return l.add(of, set), nil
}

// add returns the loan of an auxiliary file with the content set.
func (l *loans) add(of *lending, set *borrowedSet) *loan {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.known[of.auxiliary]; found != nil {
		return found
	}
	next := &loan{auxiliary: of.auxiliary, layers: of.layers, tips: set.tips}
	l.known[of.auxiliary] = next
	next.place = l.used.PushFront(next)
	l.count(next, loanOverhead+loanLayerOverhead*len(of.layers)+len(set.tips))
	if set.known {
		l.settle(next, set)
	}
	return next
}

// settle sets the set of a loan. The caller holds mu.
func (l *loans) settle(of *loan, set *borrowedSet) {
	of.set.Store(set)
	if of.place == nil {
		return
	}
	l.found++
	of.found = l.found
	if len(of.tips) > 0 {
		for layer := range of.layers {
			l.lead(of, layer)
		}
	}
	l.count(of, set.size())
}

// lead makes a loan the latest of a layer. The caller holds mu.
func (l *loans) lead(of *loan, layer segment.LayerID) {
	l.latest[layer] = of
	of.leads = append(of.leads, layer)
}

// count adds to the bytes of a loan, and evicts the least recently used loans when all of them
// exceed the budget. Views keep theirs. The caller holds mu.
func (l *loans) count(of *loan, size int) {
	of.size += size
	l.bytes += size
	l.used.MoveToFront(of.place)
	for l.bytes > l.bytesMax && l.used.Back().Value != of {
		l.forget(l.used.Back().Value.(*loan))
	}
}

// forget evicts a loan. The caller holds mu.
func (l *loans) forget(of *loan) {
	l.bytes -= of.size
	l.used.Remove(of.place)
	of.place = nil
	delete(l.known, of.auxiliary)
	for _, layer := range of.leads {
		if l.latest[layer] == of {
			delete(l.latest, layer)
		}
	}
}

// rename moves a loan to the auxiliary file that has replaced its first one.
func (l *loans) rename(of *loan, auxiliary segment.LayerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.place != nil {
		if other := l.known[auxiliary]; other != nil { // another request has read it already
			l.forget(other)
		}
		delete(l.known, of.auxiliary)
		of.auxiliary = auxiliary
		l.known[auxiliary] = of
	}
}

// merged records that a layer holds the objects of others.
func (l *loans) merged(layer segment.LayerID, former map[segment.LayerID]struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range former {
		if of := l.latest[id]; of != nil && (l.latest[layer] == nil || l.latest[layer].found < of.found) {
			l.lead(of, layer)
		}
	}
}

// relativesMax is the number of known sets that are tried as the start of a new one.
const relativesMax = 3

// relatives returns known loans that share layers with of, the last computed one first.
func (l *loans) relatives(of *loan) []*loan {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*loan
	for layer := range of.layers {
		if other := l.latest[layer]; other != nil && other != of && !slices.Contains(found, other) {
			found = append(found, other)
		}
	}
	slices.SortFunc(found, func(a, b *loan) int { return cmp.Compare(b.found, a.found) })
	return found[:min(len(found), relativesMax)]
}

// ask returns the set of a loan, and computes it if necessary.
func (l *loans) ask(ctx context.Context, v *View, of *loan) (*borrowedSet, error) {
	f := l.join(v, of)
	if f == nil {
		return of.ready(), nil
	}
	l.awaited.Add(1)
	defer l.awaited.Add(-1)
	select {
	case <-f.done:
		return f.set, f.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.askers--; f.askers == 0 {
		f.cancel()
		if of.flight == f {
			of.flight = nil
		}
	}
	return nil, ctx.Err()
}

// join returns the flight that computes a set, a new one if there is none, nil when the set is
// known.
func (l *loans) join(v *View, of *loan) *loanFlight {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.ready() != nil {
		return nil
	}
	f := of.flight
	if f == nil {
		ctx, cancel := context.WithCancel(v.store.closing)
		f = &loanFlight{cancel: cancel, done: make(chan struct{})}
		of.flight = f
		s, pool, owner, auxiliary := v.store, v.pool, v.owner, of.auxiliary
		rescue.Go(&s.background, func() error {
			defer cancel()
			s.lend(ctx, pool, owner, of, auxiliary, func(set *borrowedSet, err error) { l.land(of, f, set, err) })
			return nil
		}, func(err error) {
			s.log.ErrorContext(ctx, "failed to compute the visibility set of a fork", "pool", pool.String(), "error", err)
			l.land(of, f, nil, err)
		})
	}
	f.askers++
	return f
}

// land passes the result of a flight to all waiting requests.
func (l *loans) land(of *loan, f *loanFlight, set *borrowedSet, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.landed { // the failure came afterwards
		return
	}
	f.landed = true
	if of.flight == f {
		of.flight = nil
	}
	if err == nil && of.ready() == nil {
		l.settle(of, set)
	}
	f.set, f.err = set, err
	close(f.done)
}

// readBorrowed reads an auxiliary file, or the one that has replaced it.
func (s *Store) readBorrowed(ctx context.Context, pool PoolID, auxiliary segment.LayerID) (*borrowedSet, error) {
	set, err := s.readBorrowedFile(ctx, auxiliary)
	if !errors.Is(err, file.ErrNotFound) {
		return set, err
	}
	m, _, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return nil, err
	}
	if now := newLending(&m); now == nil || now.auxiliary != auxiliary {
		return s.replacedLoan(ctx, &m)
	}
	return nil, s.damage.Corrupt(auxiliary, object.ZeroID, "the visibility set of a fork is missing")
}

// replacedLoan returns the visibility set that a pool's manifest names now.
func (s *Store) replacedLoan(ctx context.Context, m *manifest) (*borrowedSet, error) {
	now := newLending(m)
	if now == nil { // a walk has shown that the tips reach all objects
		return &borrowedSet{known: true, all: true}, nil
	}
	return s.readBorrowedFile(ctx, now.auxiliary)
}

func (s *Store) readBorrowedFile(ctx context.Context, auxiliary segment.LayerID) (set *borrowedSet, err error) {
	f, err := s.Files.Open(ctx, segment.KindBorrowed.FileName(auxiliary))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data := make([]byte, f.Size())
	if err := segment.ReadFullAt(f, data, 0); err != nil {
		return nil, s.damage.Wrap(segment.KindBorrowed.FileName(auxiliary), auxiliary, object.ZeroID, err)
	}
	if set, err = decodeBorrowed(auxiliary, data); err != nil {
		return nil, s.damage.Wrap(segment.KindBorrowed.FileName(auxiliary), auxiliary, object.ZeroID, err)
	}
	return set, nil
}
