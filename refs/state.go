package refs

import (
	"context"
	"errors"
	"time"

	"packhorse/odb/kv"
)

// State describes the refs of a repository.
type State struct {
	Sequence uint64
	// RefCount is the number of refs in all namespaces.
	RefCount uint64
	// Changed is when a ref was last changed; zero if the journal does not hold that any more.
	Changed time.Time
}

// unchangedMax bounds the transactions without a change of a ref that State skips.
const unchangedMax = 1000

// State returns the state of a repository's refs, when it is durable. It reads none of the refs.
// Errors: [ErrRepositoryNotFound].
func (s *Store) State(ctx context.Context, repo RepoID) (State, error) {
	head, err := s.head(ctx, repo)
	if err != nil {
		return State{}, err
	}
	state := State{Sequence: head.sequence, RefCount: head.count}
	for sequence := head.sequence; sequence > 0 && head.sequence-sequence < unchangedMax; sequence-- {
		entry, _, err := firstEntry(ctx, s.kv, repo, sequence)
		if errors.Is(err, kv.ErrNotFound) {
			break // trimmed
		}
		if err != nil {
			return State{}, err
		}
		if entry.Ref != "" {
			state.Changed = entry.Time
			break
		}
	}
	return state, s.WaitDurable(ctx, repo)
}
