package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"packhorse/engine/upstream/remote"
	"packhorse/odb/kv"
	"packhorse/refs"
)

// Phase is the phase of a repository's sync.
type Phase string

// The phases. A detached repository has had an upstream and has none any more.
const (
	Syncing   Phase = "syncing" // a sync runs, or is due
	Synced    Phase = "synced"
	Failed    Phase = "failed" // and is tried again
	Detaching Phase = "detaching"
	Detached  Phase = "detached"
)

// State is what changes about a repository's upstream: the row of table U.
type State struct {
	Phase Phase `json:"phase"`
	// Imported is true once a sync has succeeded.
	Imported bool `json:"imported,omitempty"`
	// DefaultBranch is the default branch that the first import found, "" for the one of the record,
	// where it is kept now.
	DefaultBranch string    `json:"default_branch,omitempty"`
	LastSuccess   time.Time `json:"last_success,omitzero"`
	// LastError is why the last sync failed, "" when it did not. Clients see it.
	LastError string `json:"last_error,omitempty"`
	// Attempts is the number of failed syncs since the last success, and Next the time of the next
	// one.
	Attempts int       `json:"attempts,omitempty"`
	Next     time.Time `json:"next,omitzero"`
	// Syncer is the server that syncs, Detacher the one that detaches, of several over one store. They
	// count while that server lives.
	Syncer   string `json:"syncer,omitempty"`
	Detacher string `json:"detacher,omitempty"`
}

// ErrNoState says that the row of a repository that has an upstream is missing.
var ErrNoState = errors.New("upstream: the sync state is missing")

// errCorrupt is in the chain of errors about stored rows.
var errCorrupt = kv.ErrCorrupt

// ReadState returns the state of a repository's upstream, and the bytes that a precondition
// compares. Errors: [ErrNoState].
func ReadState(ctx context.Context, r kv.Reader, repo refs.RepoID) (State, []byte, error) {
	data, err := r.Get(ctx, StateKey(repo))
	if errors.Is(err, kv.ErrNotFound) {
		return State{}, nil, fmt.Errorf("repository %s: %w", repo, ErrNoState)
	}
	if err != nil {
		return State{}, nil, fmt.Errorf("read sync state of repository %s: %w", repo, err)
	}
	s, err := DecodeState(repo, data)
	return s, data, err
}

// DecodeState returns the state of a repository's upstream from its stored row. Errors:
// kv.ErrCorrupt.
func DecodeState(repo refs.RepoID, data []byte) (State, error) {
	s, err := decodeState(data)
	if err != nil {
		return State{}, fmt.Errorf("repository %s: %w", repo, err)
	}
	return s, nil
}

// decodeState reads what Encode wrote.
func decodeState(data []byte) (s State, err error) {
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, fmt.Errorf("%w: sync state: %w", errCorrupt, err)
	}
	return s, nil
}

// Encode returns the state as it is stored.
func (s *State) Encode() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode sync state: %w", err)
	}
	return data, nil
}

// Replace adds to b the replacement of the state stored as before, and returns the new stored form.
func (s *State) Replace(b *kv.Batch, repo refs.RepoID, before []byte) ([]byte, error) {
	data, err := s.Encode()
	if err != nil {
		return nil, err
	}
	b.Require(StateKey(repo), before)
	b.Put(StateKey(repo), data)
	return data, nil
}

// ErrDetaching says that a repository is being detached from its upstream, or cannot be.
var ErrDetaching = errors.New("upstream: being detached")

// MakeDue makes the state one in which a sync is due, and reports whether it changed. Errors:
// [ErrDetaching].
func (s *State) MakeDue() (changed bool, err error) {
	switch s.Phase {
	case Detaching, Detached:
		return false, ErrDetaching
	case Syncing:
		return false, nil
	case Synced, Failed:
	}
	s.Phase, s.Next = Syncing, time.Time{}
	return true, nil
}

// BeginDetach makes the state one that is being detached, and reports whether it was not detached
// yet. Errors: [ErrDetaching].
func (s *State) BeginDetach() (changed bool, err error) {
	switch s.Phase {
	case Detached:
		return false, nil
	case Detaching:
		return false, ErrDetaching
	case Syncing, Synced, Failed:
	}
	s.Phase = Detaching
	return true, nil
}

// Succeed records a sync that was completed. Failures of single refs in its report count as a
// failure, which is returned.
func (s *State) Succeed(now time.Time, report *Report) error {
	s.LastError, s.Next = "", time.Time{}
	s.Imported, s.LastSuccess = true, now.UTC()
	if len(report.Problems) > 0 {
		return &RefsError{Problems: report.Problems}
	}
	s.Phase, s.Attempts = Synced, 0
	return nil
}

// Fail records a sync that failed, and why in words for clients. It returns when the next one is
// due.
func (s *State) Fail(now time.Time, o *Settings, failed error, why string) (again time.Time) {
	pause := o.Pause(s.Attempts)
	if far, ok := errors.AsType[*remote.Error](failed); ok {
		pause = max(pause, far.RetryAfter)
	}
	again = now.Add(pause).UTC()
	s.Phase, s.LastError, s.Next = Failed, why, again
	s.Attempts++
	return again
}

// changeTriesMax bounds the attempts to change a state against concurrent changes.
const changeTriesMax = 16

// Change changes a stored state, unless change returns false, and returns when the new state is
// durable. change may add to the batch that stores it.
//
// Errors: those of change; [ErrNoState]; refs.ErrBusy.
func Change(
	ctx context.Context, keys kv.Store, repo refs.RepoID, change func(s *State, b *kv.Batch) (changed bool, err error),
) error {
	for range changeTriesMax {
		state, before, err := ReadState(ctx, keys, repo)
		if err != nil {
			return err
		}
		b := kv.NewBatch()
		changed, err := change(&state, b)
		if err != nil {
			return err
		}
		if !changed {
			return keys.WaitDurable(ctx, StateKey(repo))
		}
		if _, err := state.Replace(b, repo, before); err != nil {
			return err
		}
		if err = Apply(ctx, keys, b, repo); !errors.Is(err, kv.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("change sync state of repository %s: %w", repo, refs.ErrBusy)
}

// Apply commits a batch that requires the state of a repository, and returns when it is durable.
// Errors: kv.ErrConflict when another one is stored, or none, as after a deletion.
func Apply(ctx context.Context, keys kv.Store, b *kv.Batch, repo refs.RepoID) error {
	commit, err := keys.Apply(ctx, b)
	if err != nil {
		return fmt.Errorf("store sync state of repository %s: %w", repo, err)
	}
	return commit.Wait(ctx)
}

// Pending calls wake for each repository whose sync is due, now or at a later time, by its stored
// state. It calls damaged for states that cannot be read.
func Pending(
	ctx context.Context, keys kv.Reader, wake func(repo refs.RepoID, at time.Time), damaged func(key []byte, err error),
) error {
	start, end := []byte{tableState}, []byte{tableState + 1}
	for pair, err := range keys.Scan(ctx, kv.ScanOptions{Start: start, End: end}) {
		if err != nil {
			return fmt.Errorf("scan sync states: %w", err)
		}
		state, err := decodeState(pair.Value)
		if err != nil || len(pair.Key) != 1+len(refs.RepoID{}) {
			damaged(pair.Key, err)
			continue
		}
		switch state.Phase {
		case Syncing, Detaching, Failed:
			wake(refs.RepoID(pair.Key[1:]), state.Next)
		case Synced, Detached:
		}
	}
	return nil
}

// Drop adds to b the removal of the state of a repository's upstream. What [Leftovers] selects is
// removed later.
func Drop(b *kv.Batch, repo refs.RepoID) { b.Delete(StateKey(repo)) }

// Leftovers selects the refs that the upstream had in the last sync. Every batch that adds to them
// requires the state, or the head of the repository.
func Leftovers(repo refs.RepoID) kv.ScanOptions {
	prefix := refsPrefix(repo)
	return kv.ScanOptions{Start: prefix, End: kv.PrefixEnd(prefix)}
}

// Forget adds to b the removal of the refs that the upstream had in the last sync.
func Forget(b *kv.Batch, repo refs.RepoID) {
	prefix := refsPrefix(repo)
	b.DeleteRange(prefix, kv.PrefixEnd(prefix))
}
