package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/pack/invariants"
)

// Combiner lets a transaction share a batch with others of its repository that wait at the same
// time: it is what they must know of each other beside refs and receipts. Each of them is prepared
// on what those before it are about to change, as if they were committed, and one batch has the
// changes of all. If that batch is refused, each is prepared again.
type Combiner interface {
	// Follow is called for each try, before prepare, with the transactions whose changes come before
	// in the batch, in their order; most often there is none. It reports false if the transaction
	// cannot build on them, which then goes into a later batch. What it notes of them is void at the
	// next call: they may never be committed.
	Follow(before []Combiner) bool
}

// group is the transactions of a repository that share a batch. Its fields belong to the goroutine
// that has the turn, unless they say otherwise, and at the end to that of its owner.
type group struct {
	repo    RepoID
	waiting []*place // members whose turn has not come; guarded by lines.mu
	owner   *place   // who applies the batch; guarded by lines.mu
	stayed  []*place // who waits for the verdict, in the order of their turns; guarded by lines.mu
	closed  bool     // nobody may follow the last transaction
	calm    bool     // the last group of the line was not lost
	early   bool     // it builds on a Reading
	asks    bool     // it begins by asking the other servers to yield
	stands  bool     // they have been asked
	clears  bool     // its batch deletes who asks them

	base head  // the committed one
	txs  []*Tx // the changes, in their order
	size int   // of their batches
	// Of the first txs, as many as there are in known:
	known    int
	staged   *staged                     // reads what they leave
	required map[string]*kv.Precondition // of the committed state
	order    []string                    // the keys of required

	ready chan struct{} // closed when all members had their turn
	done  chan struct{} // closed when the fields below are set
	// verdict says what became of the batch, and err why it failed.
	verdict verdict
	err     error
	commit  kv.Commit
}

type verdict int

const (
	failed  verdict = iota // nothing was changed, or nobody knows
	lost                   // to another process
	settled                // the batch is visible; or there is none, and the repository has stood still
)

// sendsBack reports whether the group has decided that a transaction is to be prepared again. A
// refusal may have spoken of changes that were not committed.
func (g *group) sendsBack(p *place) bool {
	return g.verdict == lost || g.verdict == failed && !p.changes && len(g.txs) > 0
}

// groupBytesMax and groupCountMax bound the batch of a group. The rest is for rows of feeds.
const (
	groupBytesMax = kv.BatchBytesMax - 1<<20
	groupCountMax = kv.BatchCountMax - 1000
)

// form begins a group with the transaction whose turn it is, and reads at one instant what all of
// its members ask for, unless a [Reading] has the answers. Errors: those of the first one's
// question, and of the store.
func (s *Store) form(ctx context.Context, repo RepoID, p *place) (*group, error) {
	g := s.lines.begin(repo, p)
	if p.ask = s.ask(repo, p.change, p.since); p.ask.err != nil {
		return nil, p.ask.err
	}
	if s.options.Shared {
		p.ask.askYield(repo)
		if g.asks {
			if err := s.askToYield(ctx, repo); err != nil {
				return nil, err
			}
		}
	}
	now := s.options.Now()
	asks := []*ask{&p.ask}
	all := newQuestions()
	for _, member := range s.lines.members(g) {
		if len(asks) == 1 {
			all.add(&p.ask)
		}
		asked, fits := s.askFor(repo, member, all)
		if !fits {
			s.lines.cut(g, member)
			break
		}
		if asked {
			member.since = now
			asks = append(asks, &member.ask)
		}
	}
	read := func() (err error) {
		g.early = false
		if len(asks) == 1 {
			err = p.ask.read(ctx, s.kv)
		} else {
			err = all.read(ctx, s.kv, asks)
		}
		if err != nil {
			err = fmt.Errorf("read head of %s: %w", repo, err)
		}
		return err
	}
	reading := s.takeReading(repo, p)
	g.early = reading != nil && g.calm && len(asks) == 1 && reading.answer(&p.ask)
	if g.early {
		now = reading.at
	} else if err := read(); err != nil {
		return nil, err
	}
	if err := s.yield(ctx, g, p.ask.yields(), read); err != nil {
		return nil, err
	}
	p.since = now
	p.hold(g)
	return g, nil
}

// askFor asks for a transaction that waits in another goroutine, unless that has left, and adds the
// question to all. fits is false if there is no room for it.
func (s *Store) askFor(repo RepoID, p *place, all *questions) (asked, fits bool) {
	p.asking.Lock()
	defer p.asking.Unlock()
	if p.gone {
		return false, true
	}
	err := rescue.Do(func() error {
		p.ask = s.ask(repo, p.change, p.since)
		return nil
	})
	if err != nil {
		p.ask.err = err
	}
	if p.ask.err != nil {
		return false, true // it hears of that in its turn
	}
	return true, all.add(&p.ask)
}

// stage makes what the group has so far readable to the next transaction, and returns it; nil if
// the group changes nothing yet.
func (g *group) stage(keys kv.Reader) *staged {
	if len(g.txs) == 0 {
		return nil
	}
	if g.staged == nil {
		g.staged, g.required = newStaged(keys), make(map[string]*kv.Precondition)
	}
	for ; g.known < len(g.txs); g.known++ {
		batch := g.txs[g.known].batch
		for p := range batch.Preconditions() {
			key := string(p.Key)
			_, written := g.staged.rows[key]
			if _, known := g.required[key]; !written && !known {
				g.required[key] = &p
				g.order = append(g.order, key)
			}
		}
		g.staged.add(batch)
	}
	return g.staged
}

// before returns what the transactions so far want the next one to know.
func (g *group) before() []Combiner {
	before := make([]Combiner, 0, len(g.txs))
	for _, tx := range g.txs {
		before = append(before, tx.change.Combiner)
	}
	return before
}

// admits reports whether a transaction may follow those before it in one batch: what it requires is
// what they leave, or what they found.
func (g *group) admits(tx *Tx) bool {
	if g.size+tx.batch.Size() > groupBytesMax || g.count()+tx.batch.Count() > groupCountMax || tx.isLast() {
		return false
	}
	for p := range tx.batch.Preconditions() {
		value, written := g.staged.rows[string(p.Key)]
		known := g.required[string(p.Key)]
		switch {
		case written:
			if p.Absent != (value == nil) || !bytes.Equal(p.Value, value) {
				return false
			}
		case known != nil && (p.Absent != known.Absent || !bytes.Equal(p.Value, known.Value)):
			return false
		}
	}
	return true
}

func (g *group) count() (count int) {
	for _, tx := range g.txs {
		count += tx.batch.Count()
	}
	return count
}

// isLast reports whether nothing may follow the transaction in its batch.
func (tx *Tx) isLast() bool {
	if tx.dropped {
		return true
	}
	for op := range tx.batch.Operations() {
		if op.Kind == kv.OperationDeleteRange {
			return true
		}
	}
	return false
}

// add adds the changes of a transaction to the group.
func (g *group) add(tx *Tx) {
	if invariants.Enabled {
		tx.checkFenced(tx.head)
	}
	g.txs = append(g.txs, tx)
	g.size += tx.batch.Size()
	g.closed = tx.change.Combiner == nil || tx.isLast()
}

// batch returns the batch of all transactions: it requires what they found, and puts what they
// leave.
func (g *group) batch(keys kv.Reader) *kv.Batch {
	if len(g.txs) == 1 {
		return g.txs[0].batch
	}
	g.stage(keys)
	batch := kv.NewBatch()
	for _, key := range g.order {
		if p := g.required[key]; p.Absent {
			batch.RequireAbsent(p.Key)
		} else {
			batch.Require(p.Key, p.Value)
		}
	}
	for _, key := range g.staged.within(kv.ScanOptions{}) {
		if value := g.staged.rows[key]; value == nil {
			batch.Delete([]byte(key))
		} else {
			batch.Put([]byte(key), value)
		}
	}
	return batch
}

// conclude applies the batch of a group that is ready, or finds out whether the repository has
// stood still while all of its transactions were refused.
func (s *Store) conclude(ctx context.Context, g *group) {
	g.err = errors.New("refs: the batch of several transactions was given up") // by a panic
	defer func() { s.lines.end(g, s.options.CombineMax) }()
	if len(g.stayed) > 1 {
		ctx = context.WithoutCancel(ctx) // that of one caller is not that of the others
	}
	if len(g.txs) == 0 {
		now, err := s.head(ctx, g.repo)
		switch {
		case err != nil:
			g.err = err
		case now != g.base:
			g.verdict = lost
		default:
			g.verdict = settled
		}
		return
	}
	batch := g.batch(s.kv)
	if invariants.Enabled && len(g.txs) > 1 {
		g.checkChained(batch)
	}
	if g.clears {
		batch.Delete(yieldKey(g.repo))
	}
	told := make([]telling, 0, len(g.txs))
	for _, tx := range g.txs {
		told = append(told, telling{tx.change.Org, tx.told})
	}
	commit, err := s.applyTold(ctx, batch, told...)
	switch {
	case errors.Is(err, kv.ErrConflict):
		g.verdict = lost
		s.moves.of(g.repo).Add(1)
		return
	case err != nil:
		g.err = fmt.Errorf("commit to %s: %w", g.repo, err)
		return
	}
	g.verdict, g.commit = settled, commit
	if invariants.Enabled {
		for _, tx := range g.txs {
			tx.checkCounted()
		}
	}
	s.moved(g.repo)
}

// checkChained checks that the batch of several transactions takes the head from the committed one
// to that of the last of them, in steps of one: docs/invariants.md 62.
func (g *group) checkChained(batch *kv.Batch) {
	under := g.base
	for _, tx := range g.txs {
		invariants.Check(tx.head == under && tx.next.sequence == under.sequence+1,
			"refs: transaction %d of %s was prepared at %d", under.sequence+1, g.repo, tx.head.sequence)
		under = tx.next
	}
	key, required, moved := headKey(g.repo), 0, 0
	for p := range batch.Preconditions() {
		if bytes.Equal(p.Key, key) && bytes.Equal(p.Value, g.base.encode()) && !p.Absent {
			required++
		}
	}
	for op := range batch.Operations() {
		if bytes.Equal(op.Key, key) && bytes.Equal(op.Value, under.encode()) {
			moved++
		}
	}
	invariants.Check(required == 1 && moved == 1,
		"refs: a batch of %d transactions of %s requires its head %d times and moves it %d times", len(g.txs), g.repo,
		required, moved)
}
