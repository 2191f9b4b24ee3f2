package engine

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"packhorse/engine/outbox"
	"packhorse/engine/upstream"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/refs"
)

// Of several servers one syncs a repository: the state of the sync names it, and does not count
// when that server is gone. Others look again later. A detachment names its server there, too, and
// waits until no other one syncs: the one that does sees that its state was replaced, and stops.

// releaseWait bounds the time in which a sync that was stopped gives up its claim. Without that the
// claim ends with the server, or its next sync of the repository.
const releaseWait = 5 * time.Second

// claimant returns the id by which this server claims syncs, and a context that ends before others
// may take it for gone. A host that is alone has the id "".
func (h *Host) claimant(ctx context.Context) (id string, until context.Context, err error) {
	if h.joined == nil {
		return "", ctx, nil
	}
	select {
	case <-h.joined:
		id, until = h.member.Tenure()
		return id, until, nil
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
}

// elsewhere reports whether one of the servers that rows name is another one that lives.
func (h *Host) elsewhere(ctx context.Context, servers ...string) (bool, error) {
	own, _, err := h.claimant(ctx)
	if err != nil || own == "" {
		return false, err
	}
	for _, id := range servers {
		if id == "" || id == own {
			continue
		}
		if lives, err := h.member.Lives(ctx, id); lives || err != nil {
			return lives, err
		}
	}
	return false, nil
}

// awaitSync returns when no other server syncs a repository.
func (h *Host) awaitSync(ctx context.Context, id refs.RepoID) error {
	for h.joined != nil {
		state, _, err := upstream.ReadState(ctx, h.keys, id)
		if errors.Is(err, upstream.ErrNoState) {
			return nil // who goes on finds that out
		}
		if err != nil {
			return err
		}
		busy, err := h.elsewhere(ctx, state.Syncer)
		if err != nil || !busy {
			return err
		}
		if err := fair.Sleep(ctx, h.look/10); err != nil {
			return err
		}
	}
	return nil
}

// whileClaimed runs work until its end, or until the stored state of a repository is not row any
// more, or others may take this server for gone. It reports whether work was cut off so.
func (h *Host) whileClaimed(
	ctx, until context.Context, id refs.RepoID, row []byte, work func(ctx context.Context) error,
) (lost bool, err error) {
	if h.joined == nil {
		return false, work(ctx)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(until, stop)()
	over := make(chan struct{})
	var watching sync.WaitGroup
	rescue.Go(&watching, func() error {
		ticker := time.NewTicker(h.look)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-over:
				return nil
			}
			stored, err := h.keys.Get(working, upstream.StateKey(id))
			if err == nil && !bytes.Equal(stored, row) || errors.Is(err, kv.ErrNotFound) {
				stop()
			}
		}
	}, func(err error) {
		h.log.ErrorContext(ctx, "failed to watch the claim of a sync", "repository", id.String(), "error", err)
		stop()
	})
	err = work(working)
	close(over)
	watching.Wait()
	return working.Err() != nil, err
}

// releaseSync gives up the claim of a server, if the stored state has it. An error is logged.
func (h *Host) releaseSync(ctx context.Context, id refs.RepoID, own string) {
	if own == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	err := upstream.Change(ctx, h.keys, id, func(s *upstream.State, _ *kv.Batch) (changed bool, err error) {
		changed = s.Syncer == own
		s.Syncer = ""
		return changed, nil
	})
	if err != nil && !errors.Is(err, upstream.ErrNoState) {
		h.logSyncState(ctx, id, err)
	}
}

// makeDue makes s one in which a sync is due, and reports whether that is to be stored with b.
// While another server syncs, a row of the outbox in b says that another sync is to follow. Errors:
// upstream.ErrDetaching.
func (h *Host) makeDue(ctx context.Context, s *upstream.State, b *kv.Batch, id refs.RepoID) (changed bool, err error) {
	if changed, err = s.MakeDue(); err != nil {
		return false, &failure{kind: upstream.ErrDetaching, text: "the repository is being detached from its upstream"}
	}
	own, _, err := h.claimant(ctx)
	if err == nil && !changed && s.Syncer != "" && s.Syncer != own {
		outbox.Ask(b, outbox.Upstream, id)
		changed = true
	}
	return changed, err
}
