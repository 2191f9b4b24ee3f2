package odb

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"packhorse/odb/file"
	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// loan is what a fork may read of the layers that it took. It is found out when somebody asks for
// something that no ref or readable object leads to.
type loan struct {
	layers map[segment.LayerID]struct{} // that the fork took; with tips they decide what it may read
	tips   idList                       // what the fork took; empty if that was read of which they were made
	set    atomic.Pointer[borrowedSet]

	// The fields below are guarded by mu of loans.
	auxiliary segment.LayerID
	size      int               // what it counts for in bytes
	found     uint64            // counts up with each set that is found out
	leads     []segment.LayerID // layers that it is the latest of, or was
	place     *list.Element     // in used; nil: it has been forgotten
	flight    *loanFlight       // that finds out the set; nil: none
}

// loanFlight is the finding out of a set, for all who ask for it meanwhile. It ends with the last
// of them.
type loanFlight struct {
	askers int  // guarded by mu of loans
	landed bool // guarded by mu of loans
	cancel context.CancelFunc

	done chan struct{} // closed when the fields below are set
	set  *borrowedSet
	err  error
}

// ready returns the set if it is known now, else nil.
func (l *loan) ready() *borrowedSet { return l.set.Load() }

// loans keeps those that were asked for last, within a budget, and has what tips reach found out
// once for everybody who asks.
type loans struct {
	bytesMax int
	turns    *turns        // of the walks
	awaited  atomic.Int64  // how many wait for a set
	walks    atomic.Uint64 // that were begun
	grown    atomic.Uint64 // how many of them from another set

	mu     sync.Mutex // guards the fields below
	known  map[segment.LayerID]*loan
	used   *list.List                // of *loan, the last used in front
	latest map[segment.LayerID]*loan // the one found out last of those that took a layer
	bytes  int
	found  uint64
}

const (
	// loanWalkMax is how many walks find out at once what forks may read, and loanWalkOwnerMax how
	// many of them for one owner. Each takes 16 MiB for objects and reads on two cores.
	loanWalkMax, loanWalkOwnerMax = 3, 2
	// loanOverhead is about what a loan takes in memory besides its lists, and loanLayerOverhead what
	// each layer of it does.
	loanOverhead, loanLayerOverhead = 512, 64
)

func newLoans(bytesMax int) *loans {
	return &loans{
		bytesMax: bytesMax, turns: newTurns(loanWalkMax, loanWalkOwnerMax),
		known: make(map[segment.LayerID]*loan), used: list.New(), latest: make(map[segment.LayerID]*loan),
	}
}

// find returns the loan of a pool that an auxiliary file stands for.
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

// add returns the loan that an auxiliary file stands for, whose content is set.
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

// settle makes the set of a loan known. The caller holds mu.
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

// count counts more bytes of a loan, and forgets those that were not used for the longest time when
// all of them take too much. Views keep theirs. The caller holds mu.
func (l *loans) count(of *loan, size int) {
	of.size += size
	l.bytes += size
	l.used.MoveToFront(of.place)
	for l.bytes > l.bytesMax && l.used.Back().Value != of {
		l.forget(l.used.Back().Value.(*loan))
	}
}

// forget takes a loan out. The caller holds mu.
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

// rename puts a loan under the auxiliary file that has taken the place of its first one.
func (l *loans) rename(of *loan, auxiliary segment.LayerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.place != nil {
		if other := l.known[auxiliary]; other != nil { // somebody has read it already
			l.forget(other)
		}
		delete(l.known, of.auxiliary)
		of.auxiliary = auxiliary
		l.known[auxiliary] = of
	}
}

// merged tells that a layer holds what others held.
func (l *loans) merged(layer segment.LayerID, former map[segment.LayerID]struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range former {
		if of := l.latest[id]; of != nil && (l.latest[layer] == nil || l.latest[layer].found < of.found) {
			l.lead(of, layer)
		}
	}
}

// relativesMax is how many sets are tried that a new one might grow from.
const relativesMax = 3

// relatives returns known loans of layers that of has too, the one found out last first.
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

// ask returns the set of a loan, which is found out if that has not been done yet.
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

// join returns the flight that finds out a set, a new one if need be, nil when it is known.
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
			s.log.ErrorContext(ctx, "find out what a fork may read", "pool", pool.String(), "error", err)
			l.land(of, f, nil, err)
		})
	}
	f.askers++
	return f
}

// land gives what a flight found out to everybody who asked.
func (l *loans) land(of *loan, f *loanFlight, set *borrowedSet, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.landed { // what failed came afterwards
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

// readBorrowed reads an auxiliary file, or the one that has taken its place.
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
	return nil, s.damage.Corrupt(auxiliary, object.ZeroID, "the file that tells what a fork may read is missing")
}

// replacedLoan returns what a pool may read as its manifest says now.
func (s *Store) replacedLoan(ctx context.Context, m *manifest) (*borrowedSet, error) {
	now := newLending(m)
	if now == nil { // it was found out that the tips reach everything
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
