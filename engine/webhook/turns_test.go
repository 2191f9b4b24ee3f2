package webhook_test

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"packhorse/engine/webhook"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/refs"
)

type turnKey struct{}

// turns run what a deliverer computes, and know whose it was.
type turns struct {
	mu      sync.Mutex // guards tenants
	tenants []fair.Tenant
}

func (s *turns) run(ctx context.Context, tenant fair.Tenant, work func(ctx context.Context) error) error {
	s.mu.Lock()
	s.tenants = append(s.tenants, tenant)
	s.mu.Unlock()
	return work(context.WithValue(ctx, turnKey{}, tenant))
}

func (s *turns) taken() []fair.Tenant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tenants)
}

// inTurns is a store that tells of batches that are applied outside of a turn.
type inTurns struct {
	kv.Store
	t *testing.T
}

// Apply implements [kv.Store].
func (s inTurns) Apply(ctx context.Context, b *kv.Batch) (kv.Commit, error) {
	for op := range b.Operations() {
		if ctx.Value(turnKey{}) == nil && !bytes.HasPrefix(op.Key, []byte("wo")) { // a lane begins
			s.t.Errorf("%q is written outside of a turn", op.Key)
		}
	}
	return s.Store.Apply(ctx, b)
}

// What a change costs its webhooks is the organization's and the repository's: events that are
// taken, that fail, and that are retried.
func TestDeliveriesTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	charged := &turns{}
	w.turn = charged.run
	w.d = w.deliverer(inTurns{w.keys, t}, w.receivers)
	repo := w.create(7)
	w.d.Start()
	w.set(repo, 1, "refs/heads/a", "refs/heads/b")
	w.until("both events are taken", func() bool { return len(w.receivers.taken()) == 2 && w.idle() })
	w.receivers.with(func(*delivery) (int, error) { return http.StatusTeapot, nil })
	w.set(repo, 2, "refs/heads/a")
	w.until("an event is parked", func() bool { return w.status().Parked == 1 })
	w.receivers.with(nil)
	w.until("it is taken", func() bool {
		w.clock.advance(time.Minute)
		return len(w.receivers.taken()) == 3 && w.idle()
	})
	w.restart() // finds nothing
	if tenants := charged.taken(); len(tenants) < 5 {
		t.Errorf("only %d turns", len(tenants))
	} else if i := slices.IndexFunc(tenants, func(tenant fair.Tenant) bool {
		return tenant != fair.Tenant{Org: "acme", Repo: "repo-7"}
	}); i >= 0 {
		t.Errorf("a turn of %+v", tenants[i])
	}
}

// An organization has changed many repositories, before another one changes one, whose turn comes
// after a few of those.
func TestOutboxByOrganization(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	charged := &turns{}
	reached, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	w.turn = func(ctx context.Context, tenant fair.Tenant, work func(ctx context.Context) error) error {
		first.Do(func() {
			close(reached)
			<-goOn
		})
		return charged.run(ctx, tenant, work)
	}
	w.configure() // turns are those of the outbox alone
	w.d = w.deliverer(w.keys, w.receivers)
	w.d.Start()
	tell := func(org string, n byte) {
		w.d.Told(webhook.Repository{ID: refs.RepoID{0: byte(len(org)), 15: n}, Org: org, Name: org})
	}
	for n := range byte(100) {
		tell("evil", n)
	}
	<-reached // the first of them
	tell("honest", 0)
	tell("honester", 0)
	close(goOn)
	w.until("all are read", func() bool { return len(charged.taken()) == 102 })
	for _, org := range []string{"honest", "honester"} {
		if i := slices.Index(charged.taken(), fair.Tenant{Org: org, Repo: org}); i > 4 {
			t.Errorf("the outbox of %s is read after %d others", org, i)
		}
	}
}
