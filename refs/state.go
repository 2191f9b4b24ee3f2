package refs

import (
	"context"
	"fmt"
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
	if state.Changed, err = s.lastChange(ctx, repo, head.sequence); err != nil {
		return State{}, err
	}
	return state, s.WaitDurable(ctx, repo)
}

// lastChange returns when a ref was last changed by the transactions up to a sequence. That is the
// time of the last one, mostly, so the first read asks for no other.
func (s *Store) lastChange(ctx context.Context, repo RepoID, last uint64) (time.Time, error) {
	most := min(last, unchangedMax)
	for seen, count := uint64(0), uint64(1); seen < most; count *= 16 {
		keys := make([][]byte, min(count, most-seen))
		for i := range keys {
			keys[i] = journalKey(repo, last-seen-uint64(i), 0)
		}
		values, err := readKeys(ctx, s.kv, keys)
		if err != nil {
			return time.Time{}, fmt.Errorf("read journal: %w", err)
		}
		for i, value := range values {
			if value == nil {
				return time.Time{}, nil // trimmed
			}
			var shared Entry
			entry, err := decodeEntry(kv.Pair{Key: keys[i], Value: value}, &shared)
			if err != nil || entry.Ref != "" {
				return entry.Time, err
			}
		}
		seen += uint64(len(keys))
	}
	return time.Time{}, nil
}
