package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"packhorse/odb/file"
	"packhorse/odb/kv"
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
		return nil, s.damaged(companion, object.ZeroID, err)
	}
	if set, err = decodeBorrowed(companion, data); err != nil {
		return nil, s.damaged(companion, object.ZeroID, err)
	}
	return set, nil
}

// lend finds out what the tips of a fork reach, by a walk or from a twin, and writes it down in the place of the tips.
func (s *Store) lend(
	ctx context.Context, pool PoolID, companion LayerID, tips idList, twin *loan,
) (set *borrowedSet, whole map[LayerID]bool, err error) {
	if twin != nil {
		select {
		case <-twin.done:
			set, whole = twin.set, twin.whole
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	if whole == nil { // there is no twin, or it has failed, or another server was quicker
		if set, whole, err = s.walkLoan(ctx, pool, companion, tips); err != nil || whole == nil {
			return set, nil, err
		}
	}
	s.warnOfLoan(ctx, pool, s.settleLoan(ctx, pool, companion, set, whole))
	return set, whole, nil
}

// walkLoan returns what the tips of a fork reach, and which layers that is all of, when it is its turn. Without layers there is nothing to
// write down.
func (s *Store) walkLoan(ctx context.Context, pool PoolID, companion LayerID, tips idList) (*borrowedSet, map[LayerID]bool, error) {
	select {
	case s.loans.walks <- struct{}{}:
		defer func() { <-s.loans.walks }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	all, err := s.View(ctx, pool) // pins what is lent
	if err != nil {
		return nil, nil, err
	}
	defer all.Close()
	all.aside()
	part := all.manifest.lent(companion)
	if len(part.layers) == 0 { // another server has found it out
		set, err := s.replacedLoan(ctx, &all.manifest)
		return set, nil, err
	}
	v := s.newView(pool, part).aside()
	defer v.Close()
	pace := s.newPacer(loanPause)
	pace.awaited = &s.loans.awaited
	set, err := v.linked().reached(ctx, tips.ids(), pace)
	if err != nil {
		return nil, nil, fmt.Errorf("find what a fork may read: %w", err)
	}
	whole, err := v.wholeLayers(ctx, set)
	if err != nil {
		s.warnOfLoan(ctx, pool, err)
		return set, nil, nil
	}
	return set, whole, nil
}

// warnOfLoan tells why what a fork may read is not written down, so that it will be found out again.
func (s *Store) warnOfLoan(ctx context.Context, pool PoolID, err error) {
	if err != nil && !errors.Is(err, ErrNoPool) && ctx.Err() == nil {
		s.log.WarnContext(ctx, "write down what a fork may read", "pool", pool, "error", err)
	}
}

// lent returns the layers of a manifest that a companion stands beside.
func (m *manifest) lent(companion LayerID) manifest {
	part := manifest{version: m.version, drops: m.drops}
	for _, l := range m.layers {
		if id, ok := l.borrowed(); ok && id == companion {
			part.layers = append(part.layers, l)
		}
	}
	return part
}

// reached returns what tips reach in the layers of v. It rests when pace says so.
func (v *View) reached(ctx context.Context, tips []object.ID, pace *pacer) (*borrowedSet, error) {
	inv, err := newInventory(ctx, v)
	if err != nil {
		return nil, err
	}
	defer inv.close()
	inv.pace = pace
	request := PackRequest{Wants: tips}
	r := newReaching(inv, &request, &progressMeter{})
	if err := r.find(ctx, &request); err != nil {
		return nil, err
	}
	set := &borrowedSet{known: true, segments: make(map[LayerID]lentSegment)}
	for i, l := range inv.layers {
		set.segments[l.id] = newLentSegment(inv.segments[i].count, r.send.words[i])
	}
	loose := make([]object.ID, 0, r.send.count(inv.looseLayer()))
	err = r.send.each(inv.looseLayer(), func(number uint32) error {
		loose = append(loose, inv.loose.ids[number])
		return nil
	})
	set.loose = newIDList(loose)
	return set, err
}

// wholeLayers returns those of the borrowed layers of v all of whose objects are in set, or have a twin there.
func (v *View) wholeLayers(ctx context.Context, set *borrowedSet) (map[LayerID]bool, error) {
	whole := make(map[LayerID]bool)
	lowest, highest := object.ZeroID, object.ID{}
	for i := range highest {
		highest[i] = 0xff
	}
	for _, l := range v.layers {
		if segment, ok := l.(*segmentLayer); ok && set.segments[segment.id].size() == set.segments[segment.id].count {
			whole[segment.id] = true
			continue
		}
		ok := true
		var lookupErr error
		err := l.scan(ctx, lowest, highest, func(id object.ID) bool {
			ok, lookupErr = v.isIn(ctx, set, id)
			return ok
		})
		if err := errors.Join(err, lookupErr); err != nil {
			return nil, err
		}
		whole[l.layerID()] = ok
	}
	return whole, nil
}

// isIn reports whether an object of v is in set, in whichever layer.
func (v *View) isIn(ctx context.Context, set *borrowedSet, id object.ID) (bool, error) {
	if set.loose.has(id) {
		return true, nil
	}
	for _, l := range v.layers {
		at, ok, err := findIn(ctx, l, id)
		if err != nil || ok && set.has(&at) {
			return ok, err
		}
	}
	return false, nil
}

// settleLoan puts set in the place of the tips, and makes those layers own that are whole.
func (s *Store) settleLoan(ctx context.Context, pool PoolID, companion LayerID, set *borrowedSet, whole map[LayerID]bool) error {
	next, err := s.writeBorrowed(ctx, set)
	if err != nil {
		return err
	}
	used := false
	err = s.changeManifest(ctx, pool, func(m *manifest, b *kv.Batch) error {
		changed := false
		used = false
		for i := range m.layers {
			l := &m.layers[i]
			for at, c := range l.companions {
				if c.kind != layerBorrowed || c.id != companion {
					continue
				}
				changed = true
				if whole[l.id] {
					l.companions = append(l.companions[:at:at], l.companions[at+1:]...)
				} else {
					l.companions[at].id = next
					used = true
				}
				break
			}
		}
		if !changed {
			return errNoChange
		}
		if used {
			b.Put(registrationKey(next), (&registration{pool: pool, kind: layerBorrowed}).encode())
		}
		return nil
	})
	name := layerBorrowed.fileName(next)
	if err == nil && used {
		s.settle(ctx, []string{name})
		return nil
	}
	_, getErr := s.keys.Get(context.WithoutCancel(ctx), registrationKey(next))
	if errors.Is(getErr, kv.ErrNotFound) { // else the batch may have been committed all the same
		err = errors.Join(err, s.files.Delete(context.WithoutCancel(ctx), name))
	}
	return err
}

// writeBorrowed writes a companion, which is not registered yet.
func (s *Store) writeBorrowed(ctx context.Context, set *borrowedSet) (LayerID, error) {
	id := newLayerID()
	f, err := s.files.Create(ctx, layerBorrowed.fileName(id))
	if err != nil {
		return id, fmt.Errorf("begin to write what a fork may read: %w", err)
	}
	if _, err = f.Write(set.encode(id)); err == nil {
		err = f.Seal(ctx)
	}
	if err != nil {
		return id, errors.Join(fmt.Errorf("write what a fork may read: %w", err), f.Abort())
	}
	return id, nil
}
