package blame

import (
	"context"
	"fmt"
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
	key := changesKey{b.view.Pool(), parent.blob, o.blob}
	if b.known != nil {
		if changes, ok := b.known.known.Get(key); ok {
			return changes, nil
		}
	}
	changes, err := b.inHistory(ctx, parent, o)
	if changes == nil && err == nil {
		changes, err = b.compare(ctx, parent, o)
	}
	if err == nil && b.known != nil {
		changes = slices.Clip(changes)
		b.known.known.Put(key, changes, changesBytes+int64(len(changes))*int64(unsafe.Sizeof(lines.Change{})))
	}
	return changes, err
}

// inHistory returns the changes that a path history knows, nil if it does not.
func (b *blamer) inHistory(ctx context.Context, parent, o *origin) ([]lines.Change, error) {
	if parent.path != o.path {
		return nil, nil
	}
	reader, err := b.reader(ctx, o.path)
	if err != nil {
		return nil, err
	}
	stored, err := reader.Lines(ctx, o.node.id, slices.Index(o.node.row.Parents, parent.node.id))
	if err != nil {
		return nil, fmt.Errorf("read a path history: %w", err)
	}
	changes, _ := decodeChanges(stored) // of another form: the files are compared
	return changes, nil
}

func (b *blamer) compare(ctx context.Context, parent, o *origin) ([]lines.Change, error) {
	b.compared++
	after, err := b.text(ctx, o, b.final)
	if err != nil {
		return nil, err
	}
	before, err := b.text(ctx, parent, after)
	if err != nil {
		return nil, err
	}
	return lines.Diff(ctx, before, after, lineDiff)
}
