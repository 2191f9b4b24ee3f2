package odb

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"packhorse/odb/file"
	"packhorse/pack/object"
)

// loan is what a fork may read of the layers that it took: known, or being found out.
type loan struct {
	layers  map[LayerID]struct{} // that the fork took; with tips they decide what it may read
	tips    idList               // what the fork took; empty if it is all known
	awaited *atomic.Int64        // that of loans
	size    int                  // what it counts for in bytes of loans

	done  chan struct{} // closed when the fields below are set
	set   *borrowedSet
	whole map[LayerID]bool // see wholeLayers; nil if that is of no use
	err   error
}

// ready returns the set if it is known now, else nil.
func (l *loan) ready() *borrowedSet {
	select {
	case <-l.done:
		return l.set
	default:
		return nil
	}
}

// failed reports whether the set could not be found out.
func (l *loan) failed() bool {
	select {
	case <-l.done:
		return l.err != nil
	default:
		return false
	}
}

// wait returns the set when it is known.
func (l *loan) wait(ctx context.Context) (*borrowedSet, error) {
	l.awaited.Add(1)
	defer l.awaited.Add(-1)
	select {
	case <-l.done:
		return l.set, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// loans keeps those that were asked for last, and has what tips reach found out once for everybody.
type loans struct {
	bytesMax int
	walks    chan struct{} // has one for each walk under way
	awaited  atomic.Int64  // how many wait for a loan

	mu    sync.Mutex        // guards the fields below, and the size of loans
	known map[LayerID]*loan // none that has failed
	bytes int               // of all that are known, and of the tips of those that are found out
}

const (
	// loanWalkMax is how many walks find out at once what forks may read. Each takes 16 MiB for objects and reads on two cores; with the second
	// a small repository need not wait for a large one.
	loanWalkMax = 2
	// loanPause is how long a walk rests that nobody waits for, as a share of the time that it works.
	loanPause = 1
)

func newLoans(bytesMax int) *loans {
	return &loans{bytesMax: bytesMax, walks: make(chan struct{}, loanWalkMax), known: make(map[LayerID]*loan)}
}

// find returns the loan of a pool that a companion stands for.
func (l *loans) find(ctx context.Context, s *Store, pool PoolID, of *lending) (*loan, error) {
	l.mu.Lock()
	found := l.known[of.companion]
	l.mu.Unlock()
	if found != nil {
		return found, nil
	}
	set, err := s.readBorrowed(ctx, pool, of.companion)
	if err != nil {
		return nil, err
	}
	return l.begin(s, pool, of, set), nil
}

// isFull reports whether there is no room for more that is found out before anybody asks for it.
func (l *loans) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes > l.bytesMax
}

// begin returns the loan that a companion stands for, whose content is set, and has what is missing of it found out.
func (l *loans) begin(s *Store, pool PoolID, of *lending, set *borrowedSet) *loan {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.known[of.companion]; found != nil {
		return found
	}
	next := &loan{layers: of.layers, tips: set.tips, awaited: &l.awaited, done: make(chan struct{})}
	if set.known {
		l.known[of.companion] = next
		next.set = set
		close(next.done)
		l.count(next, set.size())
		return next
	}
	twin := l.twin(next)
	if twin != nil {
		next.tips = twin.tips // one copy is enough
	}
	l.known[of.companion] = next
	l.count(next, len(next.tips))
	s.background.Go(func() {
		set, whole, err := s.lend(s.closing, pool, of.companion, next.tips, twin)
		l.mu.Lock()
		defer l.mu.Unlock()
		next.set, next.whole, next.err = set, whole, err
		if err == nil {
			l.count(next, set.size())
		} else {
			l.forget(of.companion)
		}
		close(next.done)
	})
	return next
}

// twin returns a loan under way that will be the same as next, nil if there is none. The caller holds mu.
func (l *loans) twin(next *loan) *loan {
	for _, other := range l.known {
		select {
		case <-other.done:
		default:
			if bytes.Equal(other.tips, next.tips) && maps.Equal(other.layers, next.layers) {
				return other
			}
		}
	}
	return nil
}

// count counts more bytes of a loan, and forgets others when all of them take too much. Views keep theirs. The caller holds mu.
func (l *loans) count(of *loan, size int) {
	of.size += size
	l.bytes += size
	for other, loan := range l.known {
		if l.bytes <= l.bytesMax {
			return
		}
		if loan != of && loan.ready() != nil {
			l.forget(other)
		}
	}
}

// forget takes a loan out. The caller holds mu.
func (l *loans) forget(companion LayerID) {
	l.bytes -= l.known[companion].size
	delete(l.known, companion)
}

// readBorrowed reads a companion, or the one that has taken its place.
func (s *Store) readBorrowed(ctx context.Context, pool PoolID, companion LayerID) (*borrowedSet, error) {
	set, err := s.readBorrowedFile(ctx, companion)
	if !errors.Is(err, file.ErrNotFound) {
		return set, err
	}
	m, _, err := s.readManifest(ctx, s.keys, pool)
	if err != nil {
		return nil, err
	}
	if now := newLending(&m); now == nil || now.companion != companion {
		return s.replacedLoan(ctx, &m)
	}
	return nil, s.corrupt(companion, object.ZeroID, "the file that tells what a fork may read is missing")
}

// replacedLoan returns what a pool may read as its manifest says now.
func (s *Store) replacedLoan(ctx context.Context, m *manifest) (*borrowedSet, error) {
	now := newLending(m)
	if now == nil { // it was found out that the tips reach everything
		return &borrowedSet{known: true, all: true}, nil
	}
	return s.readBorrowedFile(ctx, now.companion)
}

func (s *Store) readBorrowedFile(ctx context.Context, companion LayerID) (set *borrowedSet, err error) {
	f, err := s.files.Open(ctx, layerBorrowed.fileName(companion))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data := make([]byte, f.Size())
	if err := readFullAt(f, data, 0); err != nil {
		return nil, s.damagedIn(layerBorrowed.fileName(companion), companion, object.ZeroID, err)
	}
	if set, err = decodeBorrowed(companion, data); err != nil {
		return nil, s.damagedIn(layerBorrowed.fileName(companion), companion, object.ZeroID, err)
	}
	return set, nil
}
