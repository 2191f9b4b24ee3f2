package blame

import (
	"context"
	"slices"
	"unsafe"

	"packhorse/engine/diff/lines"
	"packhorse/odb"
	"packhorse/odb/lru"
	"packhorse/pack/object"
)

// Changes remembers the changes between versions of files, within a budget: the next blame of a
// file, of another commit too, then reads only the versions that are new to it. A blob's ID is the
// hash of its bytes, so changes never become stale. It may be used concurrently; nil remembers
// nothing.
type Changes struct {
	known lru.Cache[changesKey, []lines.Change]
}

// changesKey names two blobs of a pool: nobody learns by the time of an answer what others read.
type changesKey struct {
	pool          odb.PoolID
	before, after object.ID
}

// changesBytes is what an entry costs beside its changes: its key twice, and the list that holds
// it.
const changesBytes = 240

// NewChanges returns an empty memory of bytesMax bytes.
func NewChanges(bytesMax int64) *Changes {
	return &Changes{known: lru.New[changesKey, []lines.Change](bytesMax, bytesMax/16)}
}

// changes returns the changes from the file of a parent to that of an origin.
func (b *blamer) changes(ctx context.Context, parent, o *origin) ([]lines.Change, error) {
	b.compared++
	key := changesKey{b.view.Pool(), parent.blob, o.blob}
	if b.known != nil {
		if changes, ok := b.known.known.Get(key); ok {
			return changes, nil
		}
	}
	after, err := b.text(ctx, o, b.final)
	if err != nil {
		return nil, err
	}
	before, err := b.text(ctx, parent, after)
	if err != nil {
		return nil, err
	}
	changes, err := lines.Diff(ctx, before, after, lineDiff)
	if err == nil && b.known != nil {
		changes = slices.Clip(changes)
		b.known.known.Put(key, changes, changesBytes+int64(len(changes))*int64(unsafe.Sizeof(lines.Change{})))
	}
	return changes, err
}
