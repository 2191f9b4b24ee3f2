package engine

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"packhorse/engine/organization"
	"packhorse/engine/outbound"
	"packhorse/engine/outbox"
	"packhorse/engine/webhook"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// WebhookConfig is the configuration of webhooks.
type WebhookConfig struct {
	// Hooks returns the receivers of an organization at the time of the call; nil means that nothing
	// is delivered by this host.
	Hooks func(org string) []webhook.Hook
	// Guard decides which addresses may be connected to; nil allows only public ones. Client is one
	// of its clients; nil makes one.
	Guard  *outbound.Guard
	Client *http.Client
	// Timeout is the time limit of one delivery; 15 seconds when 0.
	Timeout time.Duration
	// GiveUp is the time for which a failing event is retried before it is a dead letter; 24 hours
	// when 0; negative means a single attempt.
	GiveUp time.Duration
	// Linger is how long attempts under way may go on when this host stops; see [webhook.Config].
	Linger time.Duration
	// Clock is the system's when nil.
	Clock webhook.Clock
}

// openWebhooks makes the deliverer, which a duty starts if there may be receivers.
func (h *Host) openWebhooks(
	c WebhookConfig, version string, search time.Duration, processors *fair.Processors,
) {
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	if c.Client == nil {
		guard := c.Guard
		if guard == nil {
			guard = &outbound.Guard{}
		}
		// Organizations share the attempts. A bound for each host would let the receivers that hang there
		// hold up those of others.
		c.Client = guard.Client(outbound.Options{HeaderTimeout: c.Timeout, RedirectsMax: -1, ConnsMax: webhook.AttemptsMax})
	}
	var turn func(context.Context, fair.Tenant, func(context.Context) error) error
	if processors != nil {
		turn = processors.Serve
	}
	deliver := c.Hooks != nil
	if !deliver {
		c.Hooks = func(string) []webhook.Hook { return nil }
	}
	h.hooks = webhook.New(webhook.Config{
		KV: h.keys, Source: webhookSource{h, c.Hooks}, Client: c.Client, Timeout: c.Timeout, GiveUp: c.GiveUp,
		Linger: c.Linger, Agent: "packhorse/" + version,
		Logger: h.log, Clock: c.Clock, Search: search, Tracer: h.tracer, Cause: h.causes.transaction,
		Turn: turn,
	})
	if !deliver {
		return
	}
	h.outbox.Subscribe(outbox.Subscription[*record]{
		Listener: outbox.Webhook,
		Wants:    func(rec *record, _ string) bool { return len(c.Hooks(rec.Org)) > 0 },
		Matters:  isEvent,
		Told: func(id refs.RepoID, rec *record) {
			h.hooks.Told(webhook.Repository{ID: id, Org: rec.Org, Name: rec.Name})
		},
	})
}

// Webhooks returns what delivers events; its List, Letters and Retry work whether or not it does so
// now.
func (h *Host) Webhooks() *webhook.Deliverer { return h.hooks }

// isEvent reports whether changes of a ref are events: those of branches and tags, in all
// namespaces.
func isEvent(ref string) bool {
	_, name := refs.SplitNamespace(ref)
	return strings.HasPrefix(name, "refs/heads/") || strings.HasPrefix(name, "refs/tags/")
}

// webhookSource implements webhook.Source.
type webhookSource struct {
	host  *Host
	hooks func(org string) []webhook.Hook
}

// Hooks implements [webhook.Source].
func (s webhookSource) Hooks(org string) []webhook.Hook { return s.hooks(org) }

// Repository implements [webhook.Source]. The outbox was read before: another server may have
// written to it for a webhook that this one does not know yet.
func (s webhookSource) Repository(ctx context.Context, id refs.RepoID) (webhook.Repository, error) {
	rec, _, err := s.host.readRecord(ctx, id)
	if isNotFound(err) {
		return webhook.Repository{}, refs.ErrRepositoryNotFound
	}
	if err == nil && s.host.followOrg != nil {
		err = s.host.readOrg(ctx, rec.Org)
	}
	return webhook.Repository{ID: id, Org: rec.Org, Name: rec.Name}, err
}

// readOrg makes what is known of an organization as new as its row is now.
func (h *Host) readOrg(ctx context.Context, org string) error {
	rows, err := h.keys.Read(ctx, kv.ReadSet{Keys: [][]byte{organization.Key(org)}})
	if err != nil {
		return fmt.Errorf("read organization: %w", err)
	}
	return h.followOrg(ctx, org, rows.Values[0])
}

// Events implements [webhook.Source].
func (s webhookSource) Events(ctx context.Context, id refs.RepoID, after uint64, limit int) (refs.Page, error) {
	page, err := s.host.names.Events(ctx, id, after, limit)
	page.Entries = slices.DeleteFunc(page.Entries, func(entry refs.Entry) bool {
		return entry.Cause == causeImport || !isEvent(entry.Ref)
	})
	return page, err
}

// Waiting implements [webhook.Source].
func (s webhookSource) Waiting(ctx context.Context) iter.Seq2[refs.RepoID, error] {
	return s.host.outbox.Repositories(ctx, outbox.Webhook)
}

// Span implements [webhook.Source].
func (s webhookSource) Span(
	ctx context.Context, id refs.RepoID, after uint64,
) (first, last uint64, found bool, err error) {
	stretch, found, err := s.host.outbox.Span(ctx, outbox.Webhook, id, after)
	return stretch.First, stretch.Last, found, err
}

// Take implements [webhook.Source].
func (s webhookSource) Take(b *kv.Batch, id refs.RepoID, first, last uint64) {
	s.host.outbox.Take(b, outbox.Webhook, id, outbox.Span{First: first, Last: last})
}
