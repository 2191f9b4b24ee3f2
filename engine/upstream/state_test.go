package upstream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"packhorse/engine/upstream"
	"packhorse/engine/upstream/remote"
	"packhorse/odb/kv"
	"packhorse/odb/odbtest"
	"packhorse/refs"
)

// TestStateMoves makes a sync due, or begins a detachment, from every phase.
func TestStateMoves(t *testing.T) {
	t.Parallel()
	type outcome struct {
		phase   upstream.Phase
		changed bool
		err     error
	}
	for phase, want := range map[upstream.Phase]struct{ due, detach outcome }{
		upstream.Syncing: {outcome{upstream.Syncing, false, nil}, outcome{upstream.Detaching, true, nil}},
		upstream.Synced:  {outcome{upstream.Syncing, true, nil}, outcome{upstream.Detaching, true, nil}},
		upstream.Failed:  {outcome{upstream.Syncing, true, nil}, outcome{upstream.Detaching, true, nil}},
		upstream.Detaching: {
			outcome{upstream.Detaching, false, upstream.ErrDetaching}, outcome{upstream.Detaching, false, upstream.ErrDetaching},
		},
		upstream.Detached: {outcome{upstream.Detached, false, upstream.ErrDetaching}, outcome{upstream.Detached, false, nil}},
	} {
		s := upstream.State{Phase: phase, Next: time.Unix(1, 0)}
		changed, err := s.MakeDue()
		if got := (outcome{s.Phase, changed, err}); got != want.due || changed && !s.Next.IsZero() {
			t.Errorf("%s: MakeDue gives %+v, want %+v", phase, got, want.due)
		}
		s = upstream.State{Phase: phase}
		changed, err = s.BeginDetach()
		if got := (outcome{s.Phase, changed, err}); got != want.detach {
			t.Errorf("%s: BeginDetach gives %+v, want %+v", phase, got, want.detach)
		}
	}
}

// TestStateAfterSync fails twice, and then succeeds.
func TestStateAfterSync(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	settings := upstream.Settings{RetryMin: time.Second, RetryMax: time.Minute}
	s := upstream.State{Phase: upstream.Syncing}
	for attempt := range 2 {
		again := s.Fail(now, &settings, errors.New("gone"), "gone")
		base := time.Second << attempt
		if wait := again.Sub(now); wait < base/2 || wait >= base*3/2 || !again.Equal(s.Next) {
			t.Errorf("failure %d: again in %v", attempt, wait)
		}
		if s.Phase != upstream.Failed || s.LastError != "gone" || s.Attempts != attempt+1 {
			t.Errorf("failure %d: %+v", attempt, s)
		}
	}
	if again := s.Fail(now, &settings, &remote.Error{RetryAfter: time.Hour}, "later"); !again.Equal(now.Add(time.Hour)) {
		t.Errorf("the far side asks for an hour: again in %v", again.Sub(now))
	}
	var refused *upstream.RefsError
	if err := s.Succeed(now, &upstream.Report{Problems: []upstream.Problem{{Ref: "a"}}}); !errors.As(err, &refused) ||
		!s.Imported || s.Attempts != 3 {
		t.Errorf("with a ref that differs: %v, %+v", err, s)
	}
	if err := s.Succeed(now, &upstream.Report{}); err != nil || s.Phase != upstream.Synced || s.Attempts != 0 ||
		!s.Next.IsZero() || s.LastError != "" {
		t.Errorf("success: %v, %+v", err, s)
	}
}

// TestChange changes a stored state while another writer does, and finds due syncs.
func TestChange(t *testing.T) {
	t.Parallel()
	keys, _, shut := odbtest.OpenStores(t, vfs.NewMem())
	t.Cleanup(shut)
	repo := refs.RepoID{1}
	detach := func(s *upstream.State, _ *kv.Batch) (bool, error) { return s.BeginDetach() }
	if err := upstream.Change(t.Context(), keys, repo, detach); !errors.Is(err, upstream.ErrNoState) {
		t.Errorf("without a state: %v", err)
	}
	put := func(id refs.RepoID, s upstream.State) {
		t.Helper()
		data, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b := kv.NewBatch()
		b.Put(upstream.StateKey(id), data)
		if _, err := keys.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	put(repo, upstream.State{Phase: upstream.Synced})
	tries := 0
	err := upstream.Change(t.Context(), keys, repo, func(s *upstream.State, _ *kv.Batch) (bool, error) {
		if tries++; tries == 1 {
			put(repo, upstream.State{Phase: upstream.Failed, Attempts: 7})
		}
		return s.MakeDue()
	})
	if s, _, readErr := upstream.ReadState(t.Context(), keys, repo); err != nil || readErr != nil || tries != 2 ||
		s.Phase != upstream.Syncing || s.Attempts != 7 {
		t.Errorf("after %d tries: %+v, %v, %v", tries, s, err, readErr)
	}
	err = upstream.Change(t.Context(), keys, repo, func(*upstream.State, *kv.Batch) (bool, error) {
		put(repo, upstream.State{Attempts: tries})
		tries++
		return true, nil
	})
	if !errors.Is(err, refs.ErrBusy) {
		t.Errorf("against one who is always faster: %v", err)
	}

	put(refs.RepoID{1}, upstream.State{Phase: upstream.Syncing})
	put(refs.RepoID{2}, upstream.State{Phase: upstream.Synced})
	put(refs.RepoID{3}, upstream.State{Phase: upstream.Failed, Next: time.Unix(5, 0)})
	put(refs.RepoID{4}, upstream.State{Phase: upstream.Detached})
	b := kv.NewBatch()
	b.Put(upstream.StateKey(refs.RepoID{5}), []byte("{"))
	if _, err := keys.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	woken, damaged := map[refs.RepoID]time.Time{}, 0
	err = upstream.Pending(t.Context(), keys, func(repo refs.RepoID, at time.Time) { woken[repo] = at },
		func([]byte, error) { damaged++ })
	if err != nil || len(woken) != 2 || !woken[refs.RepoID{1}].IsZero() || !woken[refs.RepoID{3}].Equal(time.Unix(5, 0)) ||
		damaged != 1 {
		t.Errorf("due: %v, %d damaged, %v", woken, damaged, err)
	}
}
