package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"packhorse/engine/outbound"
	"packhorse/engine/outbox"
	"packhorse/engine/upstream"
	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// UpstreamConfig is the configuration of upstreams. Nothing is synced unless Enabled.
type UpstreamConfig struct {
	Enabled bool
	// Guard decides which addresses may be connected to; nil allows only public ones. Client is one
	// of its clients; nil makes one.
	Guard  *outbound.Guard
	Client *http.Client
	// Bases returns the base URLs that an organization has for providers, at the time of the call; nil
	// means that none has any.
	Bases func(org string) map[string]string
	// App returns the GitHub App that has access to an organization's repositories of an account,
	// at the time of the call. App, or its result, is nil when there is no app or when the
	// organization may not use it: an installation can see repositories of other organizations.
	App func(org, owner string) GitHubApp

	Settings upstream.Settings
	// DetachWait is the time that a detachment waits for a sync to end, ImportWait the time that a
	// request waits for the first import; 30 s, 5 s.
	DetachWait, ImportWait time.Duration
}

// GitHubApp gets access to repositories on GitHub; package githubapp implements it.
type GitHubApp interface {
	// Credentials returns what opens a repository.
	Credentials(ctx context.Context, owner, name string) (user, password string, err error)
	// Forget discards a password that GitHub rejected.
	Forget(owner, name, password string)
}

func (c *UpstreamConfig) setDefaults() {
	if c.Guard == nil {
		c.Guard = &outbound.Guard{}
	}
	if c.Client == nil {
		// The far side of a push is silent until it has indexed the pack; package remote bounds
		// that time.
		c.Client = c.Guard.Client(outbound.Options{HeaderTimeout: -1, ConnsMax: max(8, c.Settings.Workers)})
	}
	if c.Bases == nil {
		c.Bases = func(string) map[string]string { return nil }
	}
	c.DetachWait = cmp.Or(c.DetachWait, 30*time.Second)
	c.ImportWait = cmp.Or(c.ImportWait, 5*time.Second)
}

// upstreams is the part of the host that syncs repositories with their upstreams.
type upstreams struct {
	UpstreamConfig
	worker *upstream.Worker
	agent  string // user agent for upstreams
}

// causePull is the cause of changes from an upstream, upstreamSubject their subject.
const (
	causePull       = "pull-upstream"
	upstreamSubject = "upstream"
)

// openUpstreams subscribes to changes that must be sent to upstreams.
func (h *Host) openUpstreams(c UpstreamConfig, version string) {
	c.setDefaults()
	c.Settings.Logger = cmp.Or(c.Settings.Logger, h.log)
	c.Settings.SetDefaults()
	h.upstreams = upstreams{
		UpstreamConfig: c, worker: upstream.NewWorker(c.Settings), agent: "packhorse/" + cmp.Or(version, "unknown"),
	}
	if !c.Enabled {
		return
	}
	h.outbox.Subscribe(outbox.Subscription[*record]{
		Listener: outbox.Upstream,
		Wants:    func(rec *record, cause string) bool { return rec.Upstream != nil && cause != causePull },
		Matters:  upstream.Covers,
		Told:     func(id refs.RepoID, _ *record) { h.upstreams.worker.Wake(id) },
	})
}

// app returns what gets access to an account on GitHub, or nil.
func (u *upstreams) app(org, owner string) GitHubApp {
	if u.App == nil {
		return nil
	}
	return u.App(org, owner)
}

// close ends what runs.
func (u *upstreams) close() {
	u.worker.Stop()
	u.Client.CloseIdleConnections()
}

// UpstreamStats returns what syncing has done since the host was opened.
func (h *Host) UpstreamStats() upstream.Stats { return h.upstreams.worker.Stats() }

// completeUpstream checks the upstream of a new repository. Errors: [ErrInvalid], [ErrNoApp].
func (h *Host) completeUpstream(org string, base *UpstreamBase) (*upstream.Origin, error) {
	origin := base.Origin
	if err := origin.Complete(base.Host, h.upstreams.Bases(org)); err != nil {
		return nil, invalid("%v", err)
	}
	if origin.DefaultBranch != "" {
		if _, err := refs.Main.Branch(origin.DefaultBranch); err != nil {
			return nil, badName("base_repo.default_branch", err)
		}
	}
	if origin.Provider == upstream.GitHub && !origin.Public && h.upstreams.app(org, origin.Owner) == nil {
		return nil, &failure{kind: ErrNoApp, text: fmt.Sprintf(
			`base_repo: the organization has no GitHub app for the account %q; public repositories need none, with auth {"auth_type": "public"}`, origin.Owner)}
	}
	if _, err := h.upstreams.Guard.CheckURL(origin.URL()); err != nil {
		if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
			return nil, fail(ErrAddress, "base_repo.upstream_host: %q is not allowed: %s", refused.Target, refused.Why)
		}
		return nil, err
	}
	return &origin, nil
}

// UpstreamBase is the repository of another host that a new one is synced with.
type UpstreamBase struct {
	// Origin is without its base URL.
	upstream.Origin
	// Host replaces the provider's own host: a name, with or without a port.
	Host string
}

// SyncState is the sync state of a repository as answers show it.
type SyncState struct {
	Phase       upstream.Phase
	LastSuccess time.Time // zero before the first one
	LastError   string
}

// Sync returns the sync state of the repository, false when it has none.
func (r *Repository) Sync() (SyncState, bool) {
	if r.record.Upstream == nil {
		return SyncState{}, false
	}
	state := SyncState{Phase: r.state.Phase, LastSuccess: r.state.LastSuccess, LastError: r.state.LastError}
	switch {
	case state.Phase == "":
		state.Phase, state.LastError = upstream.Failed, upstream.ErrNoState.Error()
	case state.Phase != upstream.Detaching && r.busy:
		state.Phase = upstream.Syncing
	}
	return state, true
}

// withUpstream updates a record that was read with the state of its upstream: it clears a detached
// one.
func (h *Host) withUpstream(ctx context.Context, rec *record) (upstream.State, error) {
	if rec.Upstream == nil {
		return upstream.State{}, nil
	}
	state, _, err := upstream.ReadState(ctx, h.keys, rec.ID)
	if errors.Is(err, upstream.ErrNoState) {
		return upstream.State{}, nil
	}
	if err != nil {
		return state, err
	}
	rec.see(&state)
	return state, nil
}

// see updates a record that was read before the state of its upstream.
func (r *record) see(state *upstream.State) {
	if state.DefaultBranch != "" && r.Chosen != chosenLater {
		r.DefaultBranch = state.DefaultBranch
	}
	if state.Phase == upstream.Detached {
		r.Upstream = nil
	}
}

// opened returns the repository of a record that was read.
func (h *Host) opened(ctx context.Context, rec *record, stored []byte) (*Repository, error) {
	// Asked before the state is read: the other way round a whole sync fits in between, and the state
	// from before it would count as settled.
	busy := rec.Upstream != nil && h.upstreams.worker.Busy(rec.ID)
	state, err := h.withUpstream(ctx, rec)
	if err != nil {
		return nil, err
	}
	return &Repository{host: h, record: *rec, stored: stored, state: state, busy: busy}, nil
}

// isImporting reports whether the first import is running, so that the repository does not have the
// content of its upstream yet.
func (r *Repository) isImporting() bool {
	state, attached := r.Sync()
	return attached && !r.state.Imported && state.Phase == upstream.Syncing
}

// A request that waits for the first import looks again after importRest, then after twice as long
// each time, at most importRestMax: another server may do the import, and over a network each look
// is some round trips.
const (
	importRest    = 20 * time.Millisecond
	importRestMax = time.Second
)

// Imported returns the repository when its first import has ended, well or not, at once when it has
// no upstream.
//
// Errors: [ErrImporting] when that takes too long, [ErrImportWait] when ctx ends before,
// [ErrNotFound].
func (r *Repository) Imported(ctx context.Context) (*Repository, error) {
	deadline, past := time.Now().Add(r.host.upstreams.ImportWait), r.past
	for rest := importRest; r.isImporting(); rest = min(2*rest, importRestMax) {
		if time.Now().After(deadline) {
			return nil, &failure{
				kind: ErrImporting, text: "the repository is syncing with its upstream for the first time, try again",
			}
		}
		if fair.Sleep(ctx, min(rest, time.Until(deadline))) != nil {
			return nil, &failure{kind: ErrImportWait, text: "the request was cancelled while the repository was being prepared"}
		}
		var err error
		if r, err = r.host.Repository(ctx, r.record.Org, r.record.Name); err != nil {
			return nil, err
		}
		if past != nil {
			if r, err = r.At(ctx, Moment{BySequence: true, Sequence: past.sequence}); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// PullUpstream makes a sync with the upstream due and returns when that is durable. It happens in
// the background, for all refs; ref, unless it is empty, only has to be the name of a branch, or a
// full name.
//
// Errors: [ErrInvalid]; [ErrNoUpstream] when there is none to sync with; upstream.ErrDetaching;
// refs.ErrDenied.
func (r *Repository) PullUpstream(ctx context.Context, actor Actor, ref string) (uint64, error) {
	if ref != "" {
		if err := checkSyncedRef(ref); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(actor.checkSync(), r.recheck(ctx, &actor)); err != nil {
		return 0, err
	}
	if r.record.Upstream == nil {
		return 0, &failure{kind: ErrNoUpstream, text: fmt.Sprintf("repository %q has no upstream", r.record.Name)}
	}
	if actor.DryRun {
		return r.rehearseSync(ctx)
	}
	sequence, err := r.askForSync(ctx, &actor)
	if err != nil {
		return 0, err
	}
	r.host.causes.note(ctx, r.record.ID)
	r.host.upstreams.worker.WakeNow(r.record.ID)
	return sequence, nil
}

// rehearseSync checks what askForSync would change. Errors: upstream.ErrDetaching.
func (r *Repository) rehearseSync(ctx context.Context) (uint64, error) {
	state, _, err := upstream.ReadState(ctx, r.host.keys, r.record.ID)
	if err == nil {
		_, err = r.host.makeDue(ctx, &state, kv.NewBatch(), r.record.ID)
	}
	if err != nil {
		return 0, err
	}
	return r.Sequence(ctx)
}

// askForSync makes the sync state say that one is due. Only under an idempotency key is that an
// entry in the journal.
func (r *Repository) askForSync(ctx context.Context, actor *Actor) (uint64, error) {
	if actor.Receipt == nil {
		if err := r.makeSyncDue(ctx); err != nil {
			return 0, err
		}
		return r.Sequence(ctx)
	}
	return changeRefs(ctx, r, actor, "ask-for-sync",
		func(ctx context.Context, tx *refs.Tx, _ *Repository) (uint64, error) {
			state, before, err := upstream.ReadState(ctx, r.host.keys, r.record.ID)
			if err != nil {
				return 0, err
			}
			changed, err := r.host.makeDue(ctx, &state, tx.Batch(), r.record.ID)
			if err == nil && changed {
				_, err = state.Replace(tx.Batch(), r.record.ID, before)
			}
			if err != nil {
				return 0, err
			}
			return tx.Sequence() + 1, nil
		})
}

// makeSyncDue makes the sync state say that one is due. Errors: upstream.ErrDetaching.
func (r *Repository) makeSyncDue(ctx context.Context) error {
	return upstream.Change(ctx, r.host.keys, r.record.ID, func(s *upstream.State, b *kv.Batch) (changed bool, err error) {
		return r.host.makeDue(ctx, s, b, r.record.ID)
	})
}

// hastenSync has a sync that waits for another try run at once.
func (r *Repository) hastenSync(ctx context.Context) {
	if r.host.joined != nil { // another server may be the one that waits
		err := r.makeSyncDue(ctx)
		if err != nil && !errors.Is(err, upstream.ErrDetaching) && !errors.Is(err, upstream.ErrNoState) {
			r.host.logSyncState(ctx, r.record.ID, err)
		}
	}
	r.host.upstreams.worker.WakeNow(r.record.ID)
}

// checkSyncedRef refuses what cannot be the name of a ref that is synced.
func checkSyncedRef(ref string) error {
	name := ref
	if !upstream.Covers(name) {
		name = "refs/heads/" + ref
	}
	if err := refs.CheckName(name); err != nil {
		return badName("ref", err)
	}
	return nil
}
