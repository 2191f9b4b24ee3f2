// Package webhook tells an organization's receivers of the changes of branches and tags.
//
// Start at [New] and [Deliverer.Start]. What has to be told comes from an outbox, which a crash
// does not empty, and from the journal: for each hook and repository a cursor says how far into the
// journal all has been dealt with. An event is sent at least once, and the events of one ref in
// their order, each after the one before it was taken or given up. One that fails is parked, in a
// row of its own, with what follows of its ref; the cursor moves on, so that other refs do not
// wait. It is tried again for a day, ever less often, and is a dead letter then, which only an
// operator sends again ([Deliverer.Retry]).
//
// A change of any branch or tag is an event, in all namespaces, under the stored name of the ref.
// Notes and other refs are none, nor is what a repository is created with, nor what comes through
// `+import`. The events of a repository that is deleted before they were first tried are gone with
// its journal.
//
// Each hook has a lane: a goroutine that owns what is in memory of it, and a few attempts at a
// time, so that a slow receiver holds up nobody else. All that an organization's hooks have under
// way is bounded too, and organizations take turns. Memory is bounded by what a lane has open of
// the journal and by how many of its events may be parked.
package webhook

import (
	"context"
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
	"packhorse/refs"
)

// Hook is a receiver as it is configured. Its organization and URL say which one it is; a secret
// may be replaced.
type Hook struct {
	URL    string
	Secret string
}

// Repository is what events tell of a repository.
type Repository struct {
	ID   refs.RepoID
	Org  string
	Name string
}

// Source is what the deliverer asks of the host; package engine implements it. Its methods are
// called concurrently.
type Source interface {
	// Hooks returns the receivers of an organization, as they are now.
	Hooks(org string) []Hook
	// Repository describes a repository. Errors: [refs.ErrRepositoryNotFound].
	Repository(ctx context.Context, id refs.RepoID) (Repository, error)
	// Events returns a page of the journal, without what is no event. Errors:
	// [refs.ErrRepositoryNotFound], [refs.ErrTrimmed].
	Events(ctx context.Context, id refs.RepoID, after uint64, limit int) (refs.Page, error)
	// Waiting walks the repositories with something in the outbox.
	Waiting(ctx context.Context) iter.Seq2[refs.RepoID, error]
	// Span returns the first and the last transaction in the outbox after a sequence, and false if
	// there is none.
	Span(ctx context.Context, id refs.RepoID, after uint64) (first, last uint64, found bool, err error)
	// Remove lets b remove these transactions, and what lies between them, from the outbox.
	Remove(b *kv.Batch, id refs.RepoID, first, last uint64)
}

// Config is what a deliverer works with. KV, Source and Client are required.
type Config struct {
	KV     kv.Store
	Source Source
	// Client sends; it follows no redirects and connects only where it may.
	Client *http.Client
	// Timeout is how long one attempt may take, answer included; 15 seconds.
	Timeout time.Duration
	// GiveUp is how old an event gets, from its first attempt on, before an attempt that fails makes
	// it a dead letter; 24 hours, and the first attempt is the last one when negative.
	GiveUp time.Duration
	// Agent is the User-Agent.
	Agent  string
	Logger *slog.Logger
	// Clock is the system's when nil.
	Clock Clock
}

// Deliverer delivers the events of a host. Its methods may be called concurrently.
type Deliverer struct {
	Config

	cancel   context.CancelFunc
	ended    sync.WaitGroup
	wake     chan struct{} // holds one when there is something in told
	attempts *fair.Queue   // over all lanes
	pages    chan struct{} // has room for pages of the journal that are being read

	rows    sync.Mutex // guards changes of stream rows, which lanes and the outbox's reader both make
	retries sync.Mutex // keeps two calls of Retry from taking the same letters

	mu    sync.Mutex // guards the fields below
	told  map[refs.RepoID]bool
	lanes map[hookID]*lane

	seen map[refs.RepoID]uint64 // up to where run has read the outbox, so that it does not look at anything before again

	delivered, failed, dead atomic.Uint64
	pending                 atomic.Int64
}

// AttemptsMax bounds the attempts under way, and with them the connections of the client.
const AttemptsMax = 256

// Bounds of memory and of connections.
const (
	attemptsOrgMax = 32 // of one organization's hooks, all of which may hang
	pagesMax       = 4
	seenMax        = 100_000
)

// newAttempts bounds how many attempts are under way, in all and of one organization. Where more
// are asked for, the organization with the fewest comes next, so that one whose receivers hang
// holds up its own events and nobody else's. Events wait for as long as it takes.
func newAttempts(most, orgMost int64) *fair.Queue {
	return fair.NewQueue(fair.Options{Capacity: most, Share: orgMost, Waiting: math.MaxInt, Wait: math.MaxInt64})
}

// Stats are counts since the start, but for Pending.
type Stats struct {
	// Delivered events were taken, Failed attempts were not, and Dead events were given up.
	Delivered, Failed, Dead uint64
	// Pending is how many events are held in memory: those that are being sent, and those that failed
	// or wait for one that did.
	Pending int64
}

// New returns a deliverer that nothing is sent by before [Deliverer.Start]. [Deliverer.Told], List
// and Retry may be called before that.
func New(c Config) *Deliverer {
	if c.Timeout == 0 {
		c.Timeout = 15 * time.Second
	}
	if c.GiveUp == 0 {
		c.GiveUp = 24 * time.Hour
	}
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Deliverer{
		Config: c, wake: make(chan struct{}, 1),
		attempts: newAttempts(AttemptsMax, attemptsOrgMax), pages: make(chan struct{}, pagesMax),
		told: make(map[refs.RepoID]bool), lanes: make(map[hookID]*lane), seen: make(map[refs.RepoID]uint64),
	}
}

// Start begins with what was left when the last deliverer over the store ended, and goes on until
// Stop.
func (d *Deliverer) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	rescue.Go(&d.ended, func() error {
		for ctx.Err() == nil {
			d.logFailure(ctx, "hear of changes", rescue.Do(func() error {
				d.run(ctx)
				return nil
			}))
			_ = d.pause(ctx) // ctx is looked at next
		}
		return nil
	}, func(err error) { d.logFailure(ctx, "hear of changes", err) })
}

// Stop ends the attempts under way, which count as not made, and waits for them.
func (d *Deliverer) Stop() {
	if d.cancel == nil {
		return
	}
	d.cancel()
	d.ended.Wait()
	d.Client.CloseIdleConnections()
}

// Told hears that the outbox has had something more of a repository, which is durable. It does not
// wait.
func (d *Deliverer) Told(id refs.RepoID) {
	d.mu.Lock()
	d.told[id] = true
	d.mu.Unlock()
	signal(d.wake)
}

// Stats returns the counts.
func (d *Deliverer) Stats() Stats {
	return Stats{Delivered: d.delivered.Load(), Failed: d.failed.Load(), Dead: d.dead.Load(), Pending: d.pending.Load()}
}

// signal wakes who waits for a channel that holds one.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// apply makes a batch visible, however long it takes. Errors: that of ctx.
func (d *Deliverer) apply(ctx context.Context, b *kv.Batch) error {
	for {
		_, err := d.KV.Apply(ctx, b)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		d.Logger.ErrorContext(ctx, "state of webhooks cannot be stored", "error", err)
		if err := d.pause(ctx); err != nil {
			return err
		}
	}
}

// storePause is how long the deliverer waits when the stores fail.
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
