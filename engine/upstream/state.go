package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// Phase is how a repository stands to its upstream.
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
	// DefaultBranch is the default branch that the first import found, "" for the one of the record, where it is kept now.
	DefaultBranch string    `json:"default_branch,omitempty"`
	LastSuccess   time.Time `json:"last_success,omitzero"`
	// LastError is why the last sync failed, "" when it did not. Clients are told it.
	LastError string `json:"last_error,omitempty"`
	// Attempts is how many syncs have failed since one succeeded, and Next when the next one is due.
	Attempts int       `json:"attempts,omitempty"`
	Next     time.Time `json:"next,omitzero"`
}

// ErrNoState says that the row of a repository that has an upstream is missing.
var ErrNoState = errors.New("upstream: the sync state is missing")

// errCorrupt is in the chain of what is wrong with stored rows.
var errCorrupt = kv.ErrCorrupt

// ReadState returns the state of a repository's upstream, and the bytes that a precondition compares. Errors: [ErrNoState].
func ReadState(ctx context.Context, r kv.Reader, repo refs.RepoID) (State, []byte, error) {
	data, err := r.Get(ctx, StateKey(repo))
	if errors.Is(err, kv.ErrNotFound) {
		return State{}, nil, fmt.Errorf("repository %s: %w", repo, ErrNoState)
	}
	if err != nil {
		return State{}, nil, fmt.Errorf("read sync state of repository %s: %w", repo, err)
	}
	s, err := DecodeState(data)
	if err != nil {
		return State{}, nil, fmt.Errorf("repository %s: %w", repo, err)
	}
	return s, data, nil
}

// DecodeState reads what Encode wrote.
func DecodeState(data []byte) (s State, err error) {
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

// Drop lets b remove everything about a repository's upstream.
func Drop(b *kv.Batch, repo refs.RepoID) {
	b.Delete(StateKey(repo))
	Forget(b, repo)
}

// Forget lets b remove what the upstream had when it was last seen.
func Forget(b *kv.Batch, repo refs.RepoID) {
	prefix := refsPrefix(repo)
	b.DeleteRange(prefix, kv.PrefixEnd(prefix))
}
