package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"packhorse/engine/credential"
	"packhorse/engine/upstream"
	"packhorse/engine/upstream/remote"
	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/refs"
)

// syncHost is what the worker that syncs asks of the host.
type syncHost struct{ *Host }

// Org implements [upstream.Host].
func (h syncHost) Org(ctx context.Context, id refs.RepoID) (string, error) {
	rec, _, err := readRecord(ctx, h.keys, id)
	return rec.Org, err
}

// Pending implements [upstream.Host].
func (h syncHost) Pending(ctx context.Context, wake func(repo refs.RepoID, at time.Time)) error {
	start, end := upstream.StateRange()
	for pair, err := range h.keys.Scan(ctx, kv.ScanOptions{Start: start, End: end}) {
		if err != nil {
			return h.logPending(ctx, fmt.Errorf("scan sync states: %w", err))
		}
		state, err := upstream.DecodeState(pair.Value)
		if err != nil || len(pair.Key) != 1+len(refs.RepoID{}) {
			h.log.ErrorContext(ctx, "a stored sync state is damaged", "key", fmt.Sprintf("%x", pair.Key), "error", err)
			continue
		}
		switch state.Phase {
		case upstream.Syncing, upstream.Detaching, upstream.Failed:
			wake(refs.RepoID(pair.Key[1:]), state.Next)
		case upstream.Synced, upstream.Detached:
		}
	}
	for id, err := range h.outbox.repositories(ctx, upstreamListener) {
		if err != nil {
			return h.logPending(ctx, err)
		}
		wake(id, time.Time{})
	}
	return nil
}

func (h syncHost) logPending(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		h.log.ErrorContext(ctx, "looking for repositories to be synced failed", "error", err)
	}
	return err
}

// Sync implements [upstream.Host].
func (h syncHost) Sync(ctx context.Context, id refs.RepoID) time.Time {
	again, err := h.sync(ctx, id)
	switch {
	case err == nil || ctx.Err() != nil || isNotFound(err) || errors.Is(err, refs.ErrRepositoryNotFound):
	case errors.Is(err, upstream.ErrNoState): // GET /repo tells of it
		return time.Time{}
	case errors.Is(err, kv.ErrConflict): // a detachment, a deletion or another host got in between
		return h.now().Add(h.pause(0))
	default:
		h.log.ErrorContext(ctx, "a sync could not keep its state", "repository", id.String(), "error", err)
		return h.now().Add(h.pause(1))
	}
	return again
}

// pause is how long to wait after so many failures: twice as long each time, give or take a half.
func (h syncHost) pause(attempts int) time.Duration {
	s := &h.upstreams.Settings
	pause := s.RetryMax
	if attempts < 30 {
		pause = min(pause, s.RetryMin<<attempts)
	}
	return pause/2 + rand.N(pause) //nolint:gosec // it spreads load
}

// sync syncs one repository, and returns when it is to be tried again. An error says that the stores failed, or that somebody else
// has changed the state.
func (h syncHost) sync(ctx context.Context, id refs.RepoID) (again time.Time, err error) {
	rec, stored, err := readRecord(ctx, h.keys, id)
	if err != nil {
		return time.Time{}, err
	}
	state, row, err := upstream.ReadState(ctx, h.keys, id)
	if err != nil {
		return time.Time{}, err
	}
	if state.DefaultBranch != "" && rec.Chosen != chosenLater {
		rec.DefaultBranch = state.DefaultBranch
	}
	s := &syncing{Repository: &Repository{host: h.Host, record: rec, stored: stored, state: state}, row: row}
	switch {
	case rec.Upstream == nil:
		return time.Time{}, fmt.Errorf("%w: repository %s has a sync state and no upstream", ErrCorrupt, id)
	case state.Phase == upstream.Detached:
		b := kv.NewBatch()
		s.forgetAnnounced(b)
		return time.Time{}, s.Apply(ctx, b)
	case state.Phase == upstream.Detaching: // a crash has ended the process that had begun it
		_, err := s.detach(ctx, &Actor{Org: rec.Org, Subject: upstreamSubject})
		return time.Time{}, err
	}
	return h.run(ctx, s)
}

// run runs a sync between the two changes of its state.
func (h syncHost) run(ctx context.Context, s *syncing) (again time.Time, err error) {
	told, announced, err := h.outbox.span(ctx, upstreamListener, s.record.ID, 0)
	if err != nil {
		return time.Time{}, err
	}
	if s.state.Phase != upstream.Syncing {
		s.state.Phase = upstream.Syncing
		if s.row, err = s.putState(ctx, kv.NewBatch(), s.row, &s.state); err != nil {
			return time.Time{}, err
		}
	}
	begun := h.now()
	var report *upstream.Report
	failed := rescue.Do(func() (err error) {
		report, err = s.run(ctx)
		return err
	})
	if ctx.Err() != nil {
		return time.Time{}, ctx.Err() // the state stays: whoever comes next begins anew
	}
	s.state.LastError, s.state.Next = "", time.Time{}
	if failed == nil {
		s.state.Imported, s.state.LastSuccess = true, h.now().UTC()
		if len(report.Problems) > 0 {
			failed = &upstream.RefsError{Problems: report.Problems}
		}
	}
	if failed == nil {
		s.state.Phase, s.state.Attempts = upstream.Synced, 0
		if report.Moved {
			again = h.now()
		}
	} else {
		h.upstreams.worker.Failed()
		pause := h.pause(s.state.Attempts)
		if far, ok := errors.AsType[*remote.Error](failed); ok {
			pause = max(pause, far.RetryAfter)
		}
		again = h.now().Add(pause).UTC()
		s.state.Phase, s.state.LastError, s.state.Next = upstream.Failed, s.told(failed), again
		s.state.Attempts++
		h.log.WarnContext(ctx, "a sync with an upstream has failed", "repository", s.record.ID.String(), "attempts", s.state.Attempts,
			"duration", h.now().Sub(begun), "error", s.hide(failed.Error()))
	}
	b := kv.NewBatch()
	if announced {
		h.outbox.remove(b, upstreamListener, s.record.ID, told)
	}
	_, err = s.putState(ctx, b, s.row, &s.state)
	return again, err
}

// syncing is a repository while it is synced. Its state belongs to one goroutine.
type syncing struct {
	*Repository
	row     []byte // the state as it is stored
	secrets []string
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

// authorize returns what the upstream is shown.
func (s *syncing) authorize(ctx context.Context) (user, password string, err error) {
	origin := s.record.Upstream
	switch {
	case origin.Public:
		return "", "", nil
	case origin.Provider == upstream.GitHub:
		app := s.host.upstreams.app(s.record.Org, origin.Owner)
		if app == nil {
			return "", "", &failure{kind: ErrNoApp, text: fmt.Sprintf("the organization has no GitHub app for the account %q", origin.Owner)}
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

// head decides upon the default branch when the first import has seen what there is: one that was asked for stays if it can.
// Another one is stored by the transaction that creates it.
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
	request := PushRequest{Pack: p.Pack, Import: !s.state.Imported, upstream: &upstreamPull{head: s.adopted, stage: func(b *kv.Batch, moved []upstream.Update) {
		b.Require(upstream.StateKey(s.record.ID), s.row)
		p.Stage(b, moved)
	}}}
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
func (s *syncing) Apply(ctx context.Context, b *kv.Batch) error { return s.applyFenced(ctx, b, s.row) }

// forwardOnly lets branches of ours go forward, and no ref be replaced.
var forwardOnly = func() refs.Policy {
	policy, err := refs.ParsePolicy(nil, []string{string(refs.NoForcePush)})
	if err != nil {
		panic(err)
	}
	return policy
}()
