package quota

import (
	"context"

	"packhorse/odb"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
)

// Hold is what one write holds of the quotas. A nil Hold is that of a write without a quota, and
// allows everything. Its methods belong to one goroutine at a time.
type Hold struct {
	account *account
	repo    Repository // or the base of a fork
	pool    *pool      // nil after the release
	bytes   int64      // held; guarded by account.mu, as is pool
	added   map[odb.PoolLayer]odb.Size
	isNew   bool // the write creates repo
}

// open returns a hold of nothing for a repository, or for a new one that is its fork.
func (a *account) open(repo Repository, forks bool) *Hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pools[repo.Pool]
	if p == nil || forks { // deleted, or not there yet
		p = &pool{gone: true}
	}
	p.holds++
	return &Hold{account: a, repo: repo, pool: p}
}

// Grow makes the hold one of so many bytes. Only growth is refused. Errors: [ErrExceeded].
func (h *Hold) Grow(bytes int64) error {
	if h == nil {
		return nil
	}
	return h.hold(bytes, bytes)
}

// hold holds bytes of the organization's quota, own of them of the repository's.
func (h *Hold) hold(bytes, own int64) error {
	a := h.account
	limits := a.config.Limits(h.repo.Org)
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.pool == nil {
		return nil
	}
	more := bytes - h.bytes
	for _, q := range []struct {
		of           string
		limit, used  int64
		needed, more int64
	}{
		{ofRepository, limits.Repository, h.pool.bytes + h.pool.reserved, own, own - h.bytes},
		{ofOrganization, limits.Organization, a.bytes + a.reserved, bytes, more},
	} {
		// Until the organization has been counted, [Hold.Stage] is what refuses.
		if q.limit == 0 || q.more <= 0 || q.of == ofOrganization && !a.whole {
			continue
		}
		if q.used+q.more > q.limit {
			return &ExceededError{Of: q.of, Max: q.limit, Used: q.used - h.bytes, Needed: q.needed}
		}
	}
	h.bytes = bytes
	h.pool.reserved += more
	a.reserved += more
	return nil
}

// Stage makes the hold one of what a batch adds. Nothing else has been committed to the hot layer
// of the batch before it returns. Errors: [ErrExceeded].
func (h *Hold) Stage(ctx context.Context, b *kv.Batch) error {
	if h == nil {
		return nil
	}
	h.added = nil
	added, _ := odb.Sizes(b)
	bytes := int64(0)
	for l, size := range added {
		bytes += size.Bytes
		if !l.Hot || h.isNew || h.account.knows(l.ID) {
			continue
		}
		if err := h.account.again(ctx, h.repo.Pool); err != nil {
			return err
		}
	}
	if err := h.know(ctx); err != nil {
		return err
	}
	h.added = added
	return h.hold(bytes, bytes)
}

// know counts the organization, if it has got its quota since the hold was opened.
func (h *Hold) know(ctx context.Context) error {
	limits := h.account.config.Limits(h.repo.Org)
	h.account.mu.Lock()
	whole := h.account.whole
	h.account.mu.Unlock()
	switch {
	case whole || limits.Organization == 0:
		return nil
	case h.isNew:
		return h.account.knowAll(ctx)
	}
	return h.account.know(ctx, h.repo, limits)
}

// StageFork is Stage for the batch that creates a fork, whose own layer is own. It may also merge
// layers of the base, which lets go of others.
func (h *Hold) StageFork(ctx context.Context, b *kv.Batch, own segment.LayerID) error {
	if h == nil {
		return nil
	}
	if err := h.know(ctx); err != nil {
		return err
	}
	added, left := odb.Sizes(b)
	bytes := h.account.freed(left)
	for _, size := range added {
		bytes += size.Bytes
	}
	return h.hold(max(bytes, 0), added[odb.PoolLayer{ID: own, Hot: true}].Bytes)
}

// freed returns the bytes that the organization gains, as a negative number, when a pool leaves
// layers.
func (a *account) freed(left []segment.LayerID) (bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range left {
		if l := a.layers[id]; l != nil && l.users == 1 {
			bytes -= l.size.Bytes
		}
	}
	return bytes
}

// Settle counts what the batch of the last Stage has added, now that it was committed, and releases
// the hold.
func (h *Hold) Settle() {
	if h == nil {
		return
	}
	a, p := h.account, h.pool
	a.mu.Lock()
	defer a.mu.Unlock()
	if p == nil {
		return
	}
	for added, size := range h.added {
		if p.gone {
			break
		}
		l := a.layers[added.ID]
		switch {
		case l == nil && !added.Hot:
			a.use(added.ID, size)
			p.layers = append(p.layers, added)
			p.bytes += size.Bytes
		case l != nil && added.Hot:
			l.size = odb.Size{Count: l.size.Count + size.Count, Bytes: l.size.Bytes + size.Bytes}
			a.bytes += size.Bytes
			p.bytes += size.Bytes
		}
		// Otherwise the pool was read again meanwhile: with the segment, or without the hot layer, which
		// has become a part of one.
	}
	h.added = nil
	p.settled++
	h.release()
}

// SettleFork is Settle for the batch of StageFork: it counts the base and the fork again.
func (h *Hold) SettleFork(ctx context.Context, base odb.PoolID, fork Repository) {
	if h == nil {
		return
	}
	if err := h.account.again(ctx, base); err != nil {
		h.account.doubt()
	}
	h.settleAs(ctx, fork)
}

// SettleNew is Settle for the batch that has created the repository of [Ledger.BeginNew].
func (h *Hold) SettleNew(ctx context.Context) {
	if h != nil {
		h.settleAs(ctx, h.repo)
	}
}

// settleAs counts a repository that was created, and releases the hold.
func (h *Hold) settleAs(ctx context.Context, created Repository) {
	a := h.account
	release, err := a.take(ctx)
	if err == nil {
		err = a.add(ctx, created)
		release()
	}
	if err != nil {
		a.doubt()
	}
	h.Release()
}

// Release gives up what is held. Only the first call, and none after Settle, has an effect.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	h.account.mu.Lock()
	defer h.account.mu.Unlock()
	h.release()
}

// release is Release for a caller that holds mu.
func (h *Hold) release() {
	if h.pool == nil {
		return
	}
	h.account.reserved -= h.bytes
	h.pool.reserved -= h.bytes
	h.pool.holds--
	h.bytes, h.pool = 0, nil
}
