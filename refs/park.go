package refs

import (
	"context"

	"packhorse/odb/kv"
)

// A repository that was deleted, and may come back, is parked: it has refs and a journal, and no
// head. So nobody finds it, and nobody writes to it. Its head lies elsewhere, where the caller of
// [Tx.Park] has put it.

// Revive adds to batch that a parked repository comes back, with the head that [Tx.Park] gave, and
// returns the sequence of the entry that tells so in its journal. The batch fails with
// kv.ErrConflict if the repository is there. The caller makes it require the row that the head was
// read from, and removes that row. [Store.ApplyRevival] applies it.
//
// Errors: [ErrCorrupt] for a head that cannot be read; [ErrLimit].
func (s *Store) Revive(batch *kv.Batch, repo RepoID, change Change, parked []byte) (sequence uint64, err error) {
	if err := change.check(); err != nil {
		return 0, err
	}
	last, err := decodeHead(parked)
	if err != nil {
		return 0, err
	}
	if change.Time.IsZero() {
		change.Time = s.options.Now()
	}
	next, mark := last.following(change.Time)
	s.enqueue(batch, &change, &next, revivedRow(repo, &change, next.sequence))
	batch.RequireAbsent(headKey(repo))
	batch.Put(headKey(repo), next.encode())
	putShared(batch, repo, &change, &last, &next, mark)
	return next.sequence, batch.Err()
}

// ApplyRevival applies a batch with a repository that [Store.Revive] has brought back for the same
// change, at the sequence that it returned, and adds that to the feed of the change's organization.
// It is otherwise [kv.Store.Apply].
func (s *Store) ApplyRevival(
	ctx context.Context, batch *kv.Batch, repo RepoID, change Change, sequence uint64,
) (kv.Commit, error) {
	return s.applyTold(ctx, batch, telling{change.Org, revivedRow(repo, &change, sequence)})
}

// revivedRow is the row of a repository that comes back: that of a creation which is not the first
// transaction.
func revivedRow(repo RepoID, change *Change, sequence uint64) *feedRow {
	return &feedRow{
		kind: feedCreated, repo: repo, sequence: sequence, count: 1, millis: change.Time.UnixMilli(),
	}
}
