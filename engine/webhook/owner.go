package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// takeOver makes the lane the one that works on its hook. What another one, here or on another
// server, is about to store of it fails from then on.
func (l *lane) takeOver(ctx context.Context) error {
	l.token = make([]byte, 16)
	_, _ = rand.Read(l.token) // it never fails
	b := l.newBatch()
	b.Put(hookPrefix(kindOwner, l.id), l.token)
	return l.d.apply(ctx, b)
}

// errOvertaken says that another lane works on the hook.
var errOvertaken = errors.New("another lane works on the hook")

// apply applies a batch, unless another lane has taken over. It fails only when the lane ends.
func (l *lane) apply(ctx context.Context, b *kv.Batch) {
	if b.Count() == 0 || l.isLost() {
		return
	}
	b.Require(hookPrefix(kindOwner, l.id), l.token)
	err := l.d.apply(ctx, b)
	if err == nil {
		l.applied()
	}
	l.overtaken = errors.Is(err, kv.ErrConflict) || l.overtaken
}

// newBatch begins a batch of the lane, which fails once the store has lost transactions: rows of
// those that take their numbers may look like those that the lane knows. What a panic has left of
// another one is not stored.
func (l *lane) newBatch() *kv.Batch {
	l.storedNow = l.storedNow[:0]
	b := kv.NewBatch()
	b.RequireRewinds(l.rewinds)
	return b
}

// applied says that the batch of newBatch is stored.
func (l *lane) applied() {
	for _, q := range l.storedNow {
		q.changed = false
	}
	l.storedNow = l.storedNow[:0]
}

// requireCursor reads a stream, and makes b depend on it and on the lane's being the one that works
// on the hook. Errors: errOvertaken.
func (l *lane) requireCursor(ctx context.Context, b *kv.Batch, repo refs.RepoID) (stream, bool, error) {
	set := kv.ReadSet{Keys: [][]byte{streamKey(l.id, repo), hookPrefix(kindOwner, l.id)}}
	rows, err := l.d.KV.Read(ctx, set)
	if err != nil {
		return stream{}, false, fmt.Errorf("read cursor: %w", err)
	}
	if !bytes.Equal(rows.Values[1], l.token) {
		return stream{}, false, errOvertaken
	}
	b.Require(set.Keys[1], l.token)
	return requireStream(b, set.Keys[0], rows.Values[0])
}
