package fair

import (
	"context"
	"time"
)

// debtMax bounds how far a debt puts a tenant behind its siblings: after maintenance or
// computations for minutes its requests do not wait for minutes.
const debtMax = 50 * time.Millisecond

type debtorKey struct{}

// debtor is the tenant that work of the background is for.
type debtor struct {
	processors *Processors
	tenant     Tenant
}

// Background returns a context for work of the background that takes no turns. [Debit] charges it
// to the tenant. On nil Processors, and for a tenant without an organization, it returns ctx.
func (p *Processors) Background(ctx context.Context, t Tenant) context.Context {
	if p == nil || t.Org == "" {
		return ctx
	}
	return context.WithValue(ctx, debtorKey{}, debtor{p, t})
}

// Debit charges the time that work of [Processors.Background] has taken to its tenant, whose
// requests come later for it. It reports whether a request waits of an organization that has been
// charged less, to make way for. Other work is charged to nobody.
func Debit(ctx context.Context, took time.Duration) (makeWay bool) {
	if d, is := ctx.Value(debtorKey{}).(debtor); is {
		return d.processors.debit(d.tenant, took)
	}
	return false
}

// Owe charges time that was spent on the request outside of its turns to its tenant, whose requests
// come later for it. It does not count in what the request may compute.
func (a *Account) Owe(took time.Duration) { a.processors.debit(a.tenant, took) }

func (p *Processors) debit(t Tenant, took time.Duration) (makeWay bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.debitLocked(t, took)
	return p.isAheadLocked(t.Org)
}

// debitLocked makes the requests of a tenant come later.
func (p *Processors) debitLocked(t Tenant, took time.Duration) {
	for n := p.enterLocked(&p.requests, t); n.parent != nil; n = n.parent {
		n.used = max(n.used, min(n.used+int64(took), n.parent.start+int64(debtMax)))
		n.sort()
	}
}
