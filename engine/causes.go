package engine

import (
	"context"

	"packhorse/odb/kv"
	"packhorse/odb/lru"
	"packhorse/odb/span"
	"packhorse/refs"
)

// causes remember the traces of requests that have changed refs, for what this host tells others of
// those changes afterwards. They are only in memory: another server, or the next start, tells
// without a trace.
type causes struct {
	transactions lru.Cache[transactionKey, span.Link]
	latest       lru.Cache[refs.RepoID, span.Link] // by repository
}

// transactionKey names a transaction.
type transactionKey struct {
	repo     refs.RepoID
	sequence uint64
}

// Bounds of the causes, and what one takes.
const (
	causesBytesMax = 1 << 20
	causeBytes     = 256
)

func newCauses() causes {
	return causes{
		transactions: lru.New[transactionKey, span.Link](causesBytesMax, causesBytesMax),
		latest:       lru.New[refs.RepoID, span.Link](causesBytesMax, causesBytesMax),
	}
}

// follow makes a change note the trace of ctx, before anybody is told of the change.
func (c *causes) follow(ctx context.Context, change *refs.Change, repo refs.RepoID) {
	link := span.From(ctx)
	if !link.IsValid() || change.Announce == nil {
		return
	}
	announce, announced := change.Announce, change.Announced
	var sequence uint64 // of the try that was applied
	change.Announce = func(batch *kv.Batch, updates []refs.Entry) {
		sequence = updates[0].Sequence
		announce(batch, updates)
	}
	change.Announced = func() {
		c.transactions.Put(transactionKey{repo, sequence}, link, causeBytes+int64(len(link.State)))
		c.note(ctx, repo)
		announced()
	}
}

// note notes the trace of ctx as that for which a repository is synced next.
func (c *causes) note(ctx context.Context, repo refs.RepoID) {
	if link := span.From(ctx); link.IsValid() {
		c.latest.Put(repo, link, causeBytes+int64(len(link.State)))
	}
}

// transaction returns the trace of a transaction, zero if it is not known.
func (c *causes) transaction(repo refs.RepoID, sequence uint64) span.Link {
	link, _ := c.transactions.Get(transactionKey{repo, sequence})
	return link
}

// take returns the trace for which a repository is synced, zero if it is not known, and forgets it.
func (c *causes) take(repo refs.RepoID) span.Link {
	link, _ := c.latest.Take(repo)
	return link
}
