// Package webhook sends the changes of branches and tags to an organization's receivers.
//
// Start at [New] and [Deliverer.Start]. Events come from an outbox, which survives a crash, and
// from the journal: for each hook and repository a cursor stores the position up to which the
// journal has been handled. An event is sent at least once. The events of one ref are sent in
// order, each after the previous one was delivered or given up. A failed event is parked in a row
// of its own. The later events of its ref wait in the journal; the cursor moves on, so that other
// refs do not wait. The event is retried for a day with growing pauses. Then it is a dead letter,
// which only an operator sends again ([Deliverer.Retry]).
//
// A change of any branch or tag is an event, in all namespaces, under the stored name of the ref.
// Changes of notes and other refs are not, nor are the initial refs of a repository, nor changes
// through `+import`. Deleting a repository deletes its journal and with it the events that were not
// tried yet.
//
// When the store has lost transactions, in a failover to a replica that lags, the deliverer forgets
// what it has in memory and begins anew with the rows.
//
// Each hook has a lane: a goroutine that owns its memory, and a few concurrent attempts, so that a
// slow receiver delays no other. The attempts of an organization are bounded too, and organizations
// take turns. Memory is bounded by the part of the journal that a lane holds and by the number of
// refs with a parked event. Lanes of two servers for one hook exclude each other by a row.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/odb/span"
	"packhorse/refs"
)

// Hook is a configured receiver. Organization and URL identify it; the secret may change.
type Hook struct {
	URL    string
	Secret string
}

// Repository describes a repository in events.
type Repository struct {
	ID   refs.RepoID
	Org  string
	Name string
}

// tenant is whose the work for the repository is.
func (r *Repository) tenant() fair.Tenant { return fair.Tenant{Org: r.Org, Repo: r.Name} }

// Source provides the deliverer with events; package engine implements it. Its methods are called
// concurrently.
type Source interface {
	// Hooks returns the receivers of an organization, as they are now.
	Hooks(org string) []Hook
	// Repository describes a repository. Errors: [refs.ErrRepositoryNotFound].
	Repository(ctx context.Context, id refs.RepoID) (Repository, error)
	// Events returns a page of the journal, reduced to events. Errors:
	// [refs.ErrRepositoryNotFound], [refs.ErrTrimmed].
	Events(ctx context.Context, id refs.RepoID, after uint64, limit int) (refs.Page, error)
	// Waiting walks the repositories with something in the outbox.
	Waiting(ctx context.Context) iter.Seq2[refs.RepoID, error]
	// Span returns the first and the last transaction in the outbox after a sequence, and false if
	// there is none.
	Span(ctx context.Context, id refs.RepoID, after uint64) (first, last uint64, found bool, err error)
	// Take adds to b the removal of these transactions, and those between them, from the outbox, and
	// the precondition that the first is still there.
	Take(b *kv.Batch, id refs.RepoID, first, last uint64)
}

// Config is the configuration of a deliverer. KV, Source and Client are required.
type Config struct {
	KV     kv.Store
	Source Source
	// Client sends; it follows no redirects and connects only where it may.
	Client *http.Client
	// Timeout is the time limit of one attempt, including the answer; 15 seconds.
	Timeout time.Duration
	// GiveUp is how old an event gets, from its first attempt on, before an attempt that fails makes
	// it a dead letter; 24 hours, and the first attempt is the last one when negative.
	GiveUp time.Duration
	// Linger is how long the attempts under way go on after Stop, and then how long what came of them
	// may take to be stored; 2 seconds, and not at all when negative.
	Linger time.Duration
	// Agent is the User-Agent.
	Agent  string
	Logger *slog.Logger
	// Search is the interval of searches for what other servers have put into the outbox; a minute.
	Search time.Duration
	// Clock is the system's when nil.
	Clock Clock
	// Tracer records a span of each attempt; nil for none. Cause returns the trace of the request that
	// made a transaction, which the receiver is told; zero, or a nil function, for none.
	Tracer span.Tracer
	Cause  func(repo refs.RepoID, sequence uint64) span.Link
	// Turn runs work that prepares deliveries or stores what became of them, with a context of ctx,
	// when it is the turn of the organization and the repository. A nil function runs it at once.
	// Errors: those of work; that of ctx.
	Turn func(ctx context.Context, t fair.Tenant, work func(ctx context.Context) error) error
}

// Deliverer delivers the events of a host. Its methods may be called concurrently.
type Deliverer struct {
	Config

	ended    sync.WaitGroup
	wake     chan struct{} // holds an element when told is not empty
	attempts *fair.Queue   // over all lanes
	opening  *fair.Queue   // of pages of the journal

	mu      sync.Mutex                // guards the fields below
	cancel  context.CancelFunc        // nil unless started
	told    map[refs.RepoID]time.Time // whose outbox has grown, and when
	queued  map[string][]Repository   // the same ones by organization, the oldest first
	hearing time.Time                 // when the first of those was told whose outbox is being read; zero: none is
	lanes   map[hookID]*lane

	rewinder kv.Rewinder                        // the store, if it can lose transactions; else nil
	lost     atomic.Pointer[context.CancelFunc] // ends all work on what is in memory; nil: there is none

	restsUntil map[refs.RepoID]time.Time // until when run does not read the outbox of repositories again
	// Up to where run has read the outbox, so that it does not look at anything before again.
	seen map[refs.RepoID]uint64

	delivered, failed, dead atomic.Uint64
	pending                 atomic.Int64
}

// AttemptsMax bounds the attempts under way, and with them the connections of the client.
const AttemptsMax = 256

// Bounds of memory and of connections.
const (
	attemptsOrgMax = 32 // of one organization's hooks, all of which may hang
	seenMax        = 100_000
)

// newAttempts bounds the concurrent attempts, in total and of one organization. The organization
// with the fewest goes next, and none takes more than it leaves, so that hanging receivers delay
// only the events of their own organization, however many organizations have some. Events wait
// without a time limit.
func newAttempts(most, orgMost int64) *fair.Queue {
	return fair.NewQueue(fair.Options{
		Capacity: most, Share: orgMost, LeavesRoom: true, Waiting: math.MaxInt, Wait: math.MaxInt64,
	})
}

// newOpening lets one lane at a time open a page of the journal, so that a transaction that is read
// as a whole is in memory once, and so that many hooks of one organization do not take all
// processors. The organizations take turns.
func newOpening() *fair.Queue {
	return fair.NewQueue(fair.Options{Capacity: 1, Waiting: math.MaxInt, Wait: math.MaxInt64})
}

// Stats are counts since the start, but for Pending.
type Stats struct {
	// Delivered counts the delivered events, Failed the failed attempts, and Dead the events given
	// up.
	Delivered, Failed, Dead uint64
	// Pending is the number of events in memory: those being sent, and those that failed or wait
	// for a failed one.
	Pending int64
}

// New returns a deliverer that nothing is sent by before [Deliverer.Start]. [Deliverer.Told], List
// and Retry may be called before that.
func New(c Config) *Deliverer {
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	c.GiveUp = cmp.Or(c.GiveUp, 24*time.Hour)
	c.Linger = cmp.Or(c.Linger, 2*time.Second)
	c.Search = cmp.Or(c.Search, sweepEvery)
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Turn == nil {
		c.Turn = func(ctx context.Context, _ fair.Tenant, work func(ctx context.Context) error) error { return work(ctx) }
	}
	d := &Deliverer{
		Config: c, wake: make(chan struct{}, 1),
		attempts: newAttempts(AttemptsMax, attemptsOrgMax), opening: newOpening(),
		told: make(map[refs.RepoID]time.Time), queued: make(map[string][]Repository),
		lanes: make(map[hookID]*lane), seen: make(map[refs.RepoID]uint64), restsUntil: make(map[refs.RepoID]time.Time),
	}
	if rewinder, ok := c.KV.(kv.Rewinder); ok {
		d.rewinder = rewinder
		rewinder.OnRewind(func() {
			if lost := d.lost.Load(); lost != nil {
				(*lost)()
			}
		})
	}
	return d
}

// Start resumes the pending events of the last deliverer over the store, and goes on until Stop,
// after which it may be started again. Start and Stop are their owner's: neither is called while
// another of them is under way.
func (d *Deliverer) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.mu.Lock()
	d.cancel = cancel
	d.mu.Unlock()
	rescue.Go(&d.ended, func() error {
		for ctx.Err() == nil {
			d.runUntilLost(ctx)
		}
		return nil
	}, func(err error) { d.logFailure(ctx, "read the outbox", err) })
}

// runUntilLost works until ctx ends or the store has lost transactions, whose numbers others take
// then. It leaves nothing in memory.
func (d *Deliverer) runUntilLost(ctx context.Context) {
	ctx, lost := context.WithCancel(ctx)
	defer lost()
	d.lost.Store(&lost)
	for ctx.Err() == nil {
		d.logFailure(ctx, "read the outbox", rescue.Do(func() error {
			d.run(ctx)
			return nil
		}))
		_ = d.pause(ctx) // ctx is checked next
	}
	for _, l := range d.allLanes() {
		l.close()
	}
	d.forgetAll()
}

// rewinds returns how often the store may have lost transactions.
func (d *Deliverer) rewinds() uint64 {
	if d.rewinder == nil {
		return 0
	}
	return d.rewinder.Rewinds()
}

// forgetAll empties the memory, while nothing runs.
func (d *Deliverer) forgetAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.told)
	clear(d.queued)
	d.hearing = time.Time{}
	clear(d.lanes)
	clear(d.seen)
	clear(d.restsUntil)
}

// Stop begins no more attempts, and waits for those under way. What came of them is stored. One
// that has not ended after the time that Config.Linger allows is cancelled, and counts as not made.
func (d *Deliverer) Stop() {
	d.mu.Lock()
	cancel := d.cancel
	d.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	d.ended.Wait()
	d.mu.Lock()
	d.cancel = nil
	d.mu.Unlock()
	d.forgetAll() // what was told since
	d.Client.CloseIdleConnections()
}

func (d *Deliverer) isStarted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cancel != nil
}

// Told notifies the deliverer of another durable outbox row of a repository, of which only the ID
// need be known. It does not block. Before Start it does nothing: Start finds the rows.
func (d *Deliverer) Told(repo Repository) {
	now := d.Clock.Now()
	d.mu.Lock()
	if _, ok := d.told[repo.ID]; d.cancel != nil && !ok {
		d.told[repo.ID] = now
		d.queued[repo.Org] = append(d.queued[repo.Org], repo)
	}
	d.mu.Unlock()
	signal(d.wake)
}

// Stats returns the counts.
func (d *Deliverer) Stats() Stats {
	return Stats{Delivered: d.delivered.Load(), Failed: d.failed.Load(), Dead: d.dead.Load(), Pending: d.pending.Load()}
}

// signal does a non-blocking send on a channel of capacity one.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// update applies a batch that prepare fills. When a row that the batch requires has changed in
// between, prepare is called again, with an empty batch. Errors: those of prepare and of ctx.
func (d *Deliverer) update(ctx context.Context, prepare func(b *kv.Batch) error) error {
	for {
		b := kv.NewBatch()
		b.RequireRewinds(d.rewinds())
		err := rescue.Do(func() error { return prepare(b) }) // a panic is tried again where a failure is
		if err := cmp.Or(err, ctx.Err()); err != nil {       // the latter also if what was read is of a store that lost some
			return err
		}
		if err := d.apply(ctx, b); !errors.Is(err, kv.ErrConflict) {
			return err
		}
	}
}

// apply makes a batch visible, however long it takes. Errors: kv.ErrConflict; that of ctx.
func (d *Deliverer) apply(ctx context.Context, b *kv.Batch) error {
	for {
		err := rescue.Do(func() error {
			_, err := d.KV.Apply(ctx, b)
			return err
		})
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, kv.ErrConflict) {
			return err
		}
		d.Logger.ErrorContext(ctx, "failed to store the state of webhooks", "error", err)
		if err := d.pause(ctx); err != nil {
			return err
		}
	}
}

// storePause is the pause of the deliverer when the stores fail.
const storePause = 5 * time.Second

func (d *Deliverer) pause(ctx context.Context) error {
	return d.waitUntil(ctx, d.Clock.Now().Add(storePause), nil)
}

// waitUntil returns when it is time, or something comes through wake, or with the error of ctx.
func (d *Deliverer) waitUntil(ctx context.Context, at time.Time, wake <-chan struct{}) error {
	due, stop := d.Clock.At(at)
	defer stop()
	select {
	case <-due:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
