package refs

import (
	"context"
	"slices"
	"sync"
	"time"

	"packhorse/odb/fair"
)

// lines admit the transactions of a repository in the order of arrival: the first one of those that
// wait, with others behind it when they may share its batch. They only avoid wasted work; the head
// that every batch requires protects the repository.
//
// Who has the turn of a repository begins a group. The members of the group prepare one after the
// other, each in the goroutine of its caller, and pass the turn on. The first one that stays in the
// group, its owner, applies the batch of all of them and tells the others.
type lines struct {
	mu   sync.Mutex
	byID map[RepoID]*line // guarded by mu
}

// line is the transactions of a repository. It is guarded by lines.mu.
type line struct {
	places []*place // those that wait, and those of the group
	group  *group   // that has the turn; nil while the first place is about to begin one
	limit  int      // how many transactions the next group may have
	lost   int      // groups in a row that another server was ahead of
	stands bool     // the others have been asked to yield
}

// place is that of a transaction in a line.
type place struct {
	change *Change
	since  time.Time   // when receipts were read last
	turn   chan *group // one value says whose turn has come to the place; nil: it begins a group
	tries  int         // that were lost; guarded by lines.mu while the place waits for a group

	// Of the goroutine of the transaction: what it has to pass on.
	begins bool
	holds  *group

	asking sync.Mutex // held while another transaction asks what this one reads ahead
	gone   bool       // guarded by asking

	// Of the present try; others look at it while the place waits.
	ask     ask
	changes bool // it has a batch
}

func newPlace(change *Change, since time.Time) *place {
	return &place{change: change, since: since, turn: make(chan *group, 1)}
}

// isBusy reports whether who enters the line of a repository has to wait.
func (l *lines) isBusy(repo RepoID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[repo] != nil
}

// Waiting returns how many transactions of a repository wait for their turn in this process, or
// have it.
func (s *Store) Waiting(repo RepoID) int {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	if in := s.lines.byID[repo]; in != nil {
		return len(in.places)
	}
	return 0
}

// enter puts a place into the line of a repository, in which a group may have up to limit
// transactions. The caller leaves once.
func (l *lines) enter(repo RepoID, p *place, limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.byID[repo]
	if in == nil {
		if l.byID == nil {
			l.byID = make(map[RepoID]*line)
		}
		in = &line{limit: limit}
		l.byID[repo] = in
		p.turn <- nil
	}
	in.places = append(in.places, p)
}

// await waits until the turn comes to a place. It returns the group to go on with, nil if the place
// begins one. Errors: that of ctx.
func (p *place) await(ctx context.Context) (*group, error) {
	var g *group
	select {
	case g = <-p.turn:
	default:
		err := fair.Rest(ctx, func() error {
			select {
			case g = <-p.turn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			return nil, err
		}
	}
	p.holds, p.begins = g, g == nil
	return g, nil
}

// takeTurn waits for the turn of a repository, in which nothing else of this process changes its
// refs. The caller passes it on. Errors: that of ctx.
func (s *Store) takeTurn(ctx context.Context, repo RepoID, change *Change) (pass func(), err error) {
	p := newPlace(change, s.options.Now())
	s.lines.enter(repo, p, s.options.CombineMax)
	pass = func() { s.lines.leave(repo, p) }
	if _, err := p.await(ctx); err != nil {
		pass()
		return nil, err
	}
	return pass, nil
}

// leave takes a place out of its line, and passes on what it holds.
func (l *lines) leave(repo RepoID, p *place) {
	p.asking.Lock()
	p.gone = true
	p.asking.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.byID[repo]
	if in == nil {
		return // the last of the line, after its group has ended
	}
	in.remove(p)
	select {
	case g := <-p.turn:
		p.holds, p.begins = g, g == nil
	default:
	}
	switch {
	case p.holds != nil:
		l.pass(repo, p)
	case p.begins:
		p.begins, in.group = false, nil
		l.next(repo, in)
	}
}

func (in *line) remove(p *place) {
	in.places = without(in.places, p)
	if in.group != nil {
		in.group.waiting = without(in.group.waiting, p)
	}
}

func without(places []*place, p *place) []*place {
	if at := slices.Index(places, p); at >= 0 {
		return slices.Delete(places, at, at+1)
	}
	return places
}

// begin makes a group of the place whose turn it is and of those behind it, as far as they may
// share a batch.
func (l *lines) begin(repo RepoID, p *place) *group {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.byID[repo]
	g := &group{repo: repo, ready: make(chan struct{}), done: make(chan struct{})}
	g.calm, g.asks = in.lost == 0, in.lost >= lostMax && !in.stands
	for _, behind := range in.places[1:] {
		if p.change.Combiner == nil || behind.change.Combiner == nil || len(g.waiting)+1 >= in.limit {
			break
		}
		g.waiting = append(g.waiting, behind)
	}
	in.group = g
	return g
}

// members returns those of a group that wait for their turn. They may leave at any time.
func (l *lines) members(g *group) []*place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(g.waiting)
}

// cut takes the last members out of a group. They wait for the next one.
func (l *lines) cut(g *group, first *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(g.waiting, first); at >= 0 {
		g.waiting = g.waiting[:at]
	}
}

// hold says that the place that begins a group has the turn in it.
func (p *place) hold(g *group) { p.holds, p.begins = g, false }

// put passes the turn back to the line: the place and all behind it wait for the next group.
func (l *lines) put(repo RepoID, p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.holds.waiting = nil
	l.pass(repo, p)
}

// stay leaves the place in its group, which decides about it, and passes the turn on. It reports
// whether the place owns the group: it then waits until the group is ready, and ends it.
func (l *lines) stay(repo RepoID, p *place) (owns bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := p.holds
	if g.owner == nil {
		g.owner = p
	}
	g.stayed = append(g.stayed, p)
	if g.closed {
		g.waiting = nil
	}
	l.pass(repo, p)
	return g.owner == p
}

// pass passes the turn on to the next member of the group, or says that it is ready. mu is held.
func (l *lines) pass(repo RepoID, p *place) {
	g := p.holds
	p.holds = nil
	switch {
	case len(g.waiting) > 0:
		next := g.waiting[0]
		g.waiting = g.waiting[1:]
		next.turn <- g
	case g.owner != nil:
		close(g.ready)
	default: // nobody has stayed
		in := l.byID[repo]
		in.group = nil
		l.next(repo, in)
	}
}

// next calls the first place of a line to begin a group. mu is held.
func (l *lines) next(repo RepoID, in *line) {
	if len(in.places) == 0 {
		delete(l.byID, repo)
		return
	}
	in.places[0].turn <- nil
}

// end ends a group. Those that its verdict sends back keep their places, the others lose them. A
// group that has lost a race is followed by a smaller one, which is sooner ready, and one that has
// won by a larger one, of up to limit transactions.
func (l *lines) end(g *group, limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.byID[g.repo]
	back := false
	for _, p := range g.stayed {
		if g.sendsBack(p) {
			p.tries++
			back = true
		}
		if !g.sendsBack(p) || p.tries == triesMax {
			in.places = without(in.places, p)
		}
	}
	late := g.early && g.verdict == lost // which does not say that others are faster
	switch {
	case late:
	case back:
		in.limit = max(1, min(in.limit, len(g.stayed))/2)
	default:
		in.limit = min(limit, 2*in.limit)
	}
	in.stands = g.stands
	switch {
	case late:
	case g.verdict == lost:
		in.lost++
	case len(g.txs) > 0:
		in.lost, in.stands = 0, false
	}
	in.group = nil
	close(g.done)
	l.next(g.repo, in)
}
