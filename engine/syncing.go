package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"packhorse/engine/credential"
	"packhorse/engine/outbox"
	"packhorse/engine/quota"
	"packhorse/engine/upstream"
	"packhorse/engine/upstream/remote"
	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/odb/span"
	"packhorse/refs"
)

// syncHost implements upstream.Host.
type syncHost struct{ *Host }

// Org implements [upstream.Host].
func (h syncHost) Org(ctx context.Context, id refs.RepoID) (string, error) {
	rec, _, err := h.readRecord(ctx, id)
	if isNotFound(err) {
		return "", refs.ErrRepositoryNotFound
	}
	return rec.Org, err
}

// Pending implements [upstream.Host].
func (h syncHost) Pending(ctx context.Context, wake func(repo refs.RepoID, at time.Time)) error {
	err := upstream.Pending(ctx, h.keys, wake, func(key []byte, err error) {
		h.log.ErrorContext(ctx, "corrupt sync state", "key", fmt.Sprintf("%x", key), "error", err)
	})
	if err != nil {
		return h.logPending(ctx, err)
	}
	for id, err := range h.outbox.Repositories(ctx, outbox.Upstream) {
		if err != nil {
			return h.logPending(ctx, err)
		}
		wake(id, time.Time{})
	}
	return nil
}

func (h syncHost) logPending(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		h.log.ErrorContext(ctx, "failed to find repositories to sync", "error", err)
	}
	return err
}

// Sync implements [upstream.Host].
func (h syncHost) Sync(ctx context.Context, id refs.RepoID) (again time.Time, ran bool) {
	again, ran, err := h.sync(ctx, id)
	switch {
	case err == nil || ctx.Err() != nil || isNotFound(err) || errors.Is(err, refs.ErrRepositoryNotFound):
	case errors.Is(err, upstream.ErrNoState): // GET /repo reports it
		return time.Time{}, ran
	case errors.Is(err, kv.ErrConflict): // a detachment, a deletion or another host got in between
		return h.lookAgain(), ran
	default:
		h.logSyncState(ctx, id, err)
		return h.now().Add(h.upstreams.Settings.Pause(1)), ran
	}
	return again, ran
}

// lookAgain is when to look again at a sync that somebody else got in the way of: most often
// another server, whose sync is soon over.
func (h *Host) lookAgain() time.Time {
	if h.joined != nil {
		return h.now().Add(h.look)
	}
	return h.now().Add(h.upstreams.Settings.Pause(0))
}

func (h *Host) logSyncState(ctx context.Context, id refs.RepoID, err error) {
	h.log.ErrorContext(ctx, "failed to store the state of an upstream sync", "repository", id.String(), "error", err)
}

// sync syncs one repository, unless another server does, and returns the time of the next attempt.
// An error says that the stores failed, or that another writer has changed the state.
func (h syncHost) sync(ctx context.Context, id refs.RepoID) (again time.Time, ran bool, err error) {
	rec, stored, err := h.readRecord(ctx, id)
	if err != nil {
		return time.Time{}, false, err
	}
	state, row, err := upstream.ReadState(ctx, h.keys, id)
	if err != nil {
		return time.Time{}, false, err
	}
	if busy, err := h.elsewhere(ctx, state.Syncer, state.Detacher); busy || err != nil {
		return h.now().Add(h.look), false, err
	}
	if state.DefaultBranch != "" && rec.Chosen != chosenLater {
		rec.DefaultBranch = state.DefaultBranch
	}
	s := &syncing{Repository: &Repository{host: h.Host, record: rec, stored: stored, state: state}, row: row}
	switch {
	case rec.Upstream == nil:
		return time.Time{}, false, fmt.Errorf("%w: repository %s has a sync state and no upstream", ErrCorrupt, id)
	case state.Phase == upstream.Detached:
		b := kv.NewBatch()
		s.forgetAnnounced(b)
		return time.Time{}, false, s.Apply(ctx, b)
	case state.Phase == upstream.Detaching: // a crash has ended the process that had begun it
		_, err := s.detach(ctx, &Actor{Org: rec.Org, Subject: upstreamSubject})
		return time.Time{}, true, err
	}
	return h.run(ctx, s)
}

// run runs a sync between the two changes of its state. Among several servers it is skipped when
// another one has done all that was due.
func (h syncHost) run(ctx context.Context, s *syncing) (again time.Time, ran bool, err error) {
	told, announced, err := h.outbox.Span(ctx, outbox.Upstream, s.record.ID, 0)
	if err != nil {
		return time.Time{}, false, err
	}
	asked, err := h.outbox.Asked(ctx, outbox.Upstream, s.record.ID)
	if err != nil {
		return time.Time{}, false, err
	}
	var failed error // of the sync
	var lost bool    // its claim
	own, until, err := h.claimant(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	if own != "" && !asked {
		switch {
		case s.state.Phase == upstream.Synced && !announced:
			return time.Time{}, false, nil
		case s.state.Phase == upstream.Failed && s.state.Next.After(h.now()):
			return s.state.Next, false, nil
		}
	}
	if s.state.Phase != upstream.Syncing || s.state.Syncer != own || asked {
		s.state.Phase, s.state.Syncer = upstream.Syncing, own
		b := kv.NewBatch()
		outbox.Heed(b, outbox.Upstream, s.record.ID)
		if err := s.putState(ctx, b); err != nil {
			return time.Time{}, false, err
		}
	}
	ended := false
	defer func() {
		if !ended {
			h.releaseSync(ctx, s.record.ID, own)
		}
	}()
	begun := h.now()
	var report *upstream.Report
	ctx, traced := span.Begin(span.With(ctx, h.tracer, h.causes.take(s.record.ID)), "upstream sync")
	if traced != nil {
		traced.Text(spanRepository, s.record.ID.String())
		traced.Count("packhorse.attempt", int64(s.state.Attempts)+1)
		defer func() { traced.End(cmp.Or(failed, err)) }()
	}
	lost, failed = h.whileClaimed(ctx, until, s.record.ID, s.row, func(ctx context.Context) error {
		return rescue.Do(func() (err error) {
			report, err = s.run(ctx)
			return err
		})
	})
	switch { // the state stays: the next sync starts over
	case ctx.Err() != nil:
		return time.Time{}, true, ctx.Err()
	case lost:
		return h.lookAgain(), true, nil
	}
	if failed == nil {
		failed = s.state.Succeed(h.now(), report)
	}
	switch {
	case failed != nil:
		h.upstreams.worker.Failed()
		again = s.state.Fail(h.now(), &h.upstreams.Settings, failed,
			s.secrets.Explain(failed, ErrTooLarge, ErrNoApp, credential.ErrKey, quota.ErrExceeded))
		h.log.WarnContext(ctx, "upstream sync failed", "repository", s.record.ID.String(),
			"attempts", s.state.Attempts,
			"duration", h.now().Sub(begun), "error", s.secrets.Hide(failed.Error()))
	case report.Moved:
		again = h.now()
	}
	b := kv.NewBatch()
	if announced {
		h.outbox.Remove(b, outbox.Upstream, s.record.ID, told)
	}
	s.state.Syncer = ""
	err = s.putState(ctx, b)
	ended = err == nil
	return again, true, err
}

// putState adds the replacement of the stored state by that of s to b, and returns when it is
// durable. Errors: kv.ErrConflict when another one is stored, or the repository is gone.
func (s *syncing) putState(ctx context.Context, b *kv.Batch) (err error) {
	if s.row, err = s.state.Replace(b, s.record.ID, s.row); err != nil {
		return err
	}
	return upstream.Apply(ctx, s.host.keys, b, s.record.ID)
}

// syncing is a repository while it is synced. Its state belongs to one goroutine.
type syncing struct {
	*Repository
	row     []byte // the state as it is stored
	secrets upstream.Secrets
	adopted string // the ref that the default branch is to be, "" for the one of the record
}

// run syncs.
func (s *syncing) run(ctx context.Context) (*upstream.Report, error) {
	origin := s.record.Upstream
	at, err := s.host.upstreams.Guard.CheckURL(origin.URL())
	if err != nil {
		return nil, err
	}
	run := upstream.Sync{
		Repo: s, Keys: s.host.keys, ReadOnly: origin.Public, Head: s.head,
		Far: &remote.Remote{URL: at, Client: s.host.upstreams.Client, Authorize: s.authorize, Agent: s.host.upstreams.agent},
	}
	report, err := run.Run(ctx)
	if app := s.host.upstreams.app(s.record.Org, origin.Owner); app != nil && errors.Is(err, remote.ErrUnauthorized) {
		for _, token := range s.secrets {
			app.Forget(origin.Owner, origin.Name, token)
		}
	}
	return report, err
}

// authorize returns the credentials for the upstream.
func (s *syncing) authorize(ctx context.Context) (user, password string, err error) {
	origin := s.record.Upstream
	switch {
	case origin.Public:
		return "", "", nil
	case origin.Provider == upstream.GitHub:
		app := s.host.upstreams.app(s.record.Org, origin.Owner)
		if app == nil {
			return "", "", &failure{kind: ErrNoApp, text: fmt.Sprintf("the organization has no GitHub app for the account %q",
				origin.Owner)}
		}
		user, password, err = app.Credentials(ctx, origin.Owner, origin.Name)
	default:
		var l credential.Login
		l, err = s.Credential(ctx)
		if isNotFound(err) {
			return "", "", nil
		}
		user, password = string(l.Username), string(l.Password)
		if user == "" {
			user = origin.User()
		}
	}
	s.secrets = append(s.secrets, password)
	return user, password, err
}

// head chooses the default branch when the first import knows the refs: a requested one stays if it
// exists. Another one is stored by the transaction that creates it.
func (s *syncing) head(head string, far, local func(ref string) bool) string {
	origin := s.record.Upstream
	own := s.defaultRef(refs.Main)
	switch {
	case s.record.Chosen == chosenLater, origin.DefaultBranch != "", local(own), s.state.DefaultBranch != "",
		!origin.FollowHead && far(own), !strings.HasPrefix(head, branchPrefix), !far(head):
		return own
	}
	s.adopted = head
	return head
}

// ID implements [upstream.Repository].
func (s *syncing) ID() refs.RepoID { return s.record.ID }

// Refs implements [upstream.Repository].
func (s *syncing) Refs(ctx context.Context) (all []refs.Ref, err error) {
	names, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	for ref, err := range names.In(ctx, refs.Main, "refs/") {
		if err != nil {
			return nil, fmt.Errorf("list refs: %w", err)
		}
		if upstream.Covers(ref.Name) {
			all = append(all, ref)
		}
	}
	return all, nil
}

// Pull implements [upstream.Repository], with what receives a push.
func (s *syncing) Pull(ctx context.Context, p *upstream.Pull) ([]error, error) {
	request := PushRequest{Pack: p.Pack, Import: !s.state.Imported, upstream: &upstreamPull{
		head: s.adopted, stage: func(b *kv.Batch, moved []upstream.Update) {
			b.Require(upstream.StateKey(s.record.ID), s.row)
			p.Stage(b, moved)
		},
	}}
	actor := Actor{Org: s.record.Org, Subject: upstreamSubject}
	for _, u := range p.Updates {
		request.Commands = append(request.Commands, Command{Name: u.Name, Old: u.Old, New: u.New})
		if !u.New.IsZero() {
			actor.Policy = forwardOnly
		}
	}
	push, err := s.Receive(ctx, actor, request)
	if err != nil {
		return nil, err
	}
	defer push.Close()
	result, err := push.Finish(ctx, nil)
	if err != nil {
		return nil, err
	}
	if result.Unpack != nil {
		return nil, result.Unpack
	}
	refused := make([]error, len(result.Commands))
	for i := range result.Commands {
		refused[i] = result.Commands[i].Err
	}
	return refused, nil
}

// Apply implements [upstream.Repository].
func (s *syncing) Apply(ctx context.Context, b *kv.Batch) error {
	b.Require(upstream.StateKey(s.record.ID), s.row)
	return upstream.Apply(ctx, s.host.keys, b, s.record.ID)
}

// forwardOnly permits fast-forwards of our branches, and no replaced refs.
var forwardOnly = func() refs.Policy {
	policy, err := refs.ParsePolicy(nil, []string{string(refs.NoForcePush)})
	if err != nil {
		panic(err)
	}
	return policy
}()
