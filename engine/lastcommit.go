package engine

import (
	"context"
	"fmt"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Slot waits for a slot for heavy work and returns the function that gives it back; nil needs none.
type Slot func(context.Context) (release func(), err error)

// hold takes a slot until release is called.
func (s Slot) hold(ctx context.Context) (release func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	return s(ctx)
}

// commitKey names a commit of a pool: forks do not learn from each other what they may not read.
type commitKey struct {
	pool   odb.PoolID
	commit object.ID
}

// traces keeps what is known about the last changes of files. A commit never changes, so that nothing on the shelf is ever wrong; the trace of
// a new tip ends at the commits that are there, and shares the folders that have not changed since.
type traces = shelf[commitKey, *odb.TracedFolder]

// trace returns the last changes of what lies at a path of a revision, from the shelf or by a walk, which holds a slot.
func (h *Host) trace(ctx context.Context, at position, path string, slot Slot) (*odb.TracedFolder, error) {
	key := commitKey{at.view.Pool(), at.revision.Commit}
	if known, _ := h.traces.get(key); known.Knows(path) {
		return known, nil
	}
	release, err := slot.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	options := odb.TraceOptions{Path: path}
	if !h.traces.empty() {
		options.Known = func(commit object.ID) *odb.TracedFolder {
			known, _ := h.traces.get(commitKey{key.pool, commit})
			return known
		}
	}
	found, err := at.view.Trace(ctx, at.revision.Commit, options)
	if err != nil {
		return nil, fmt.Errorf("find the last changes of %q: %w", path, err)
	}
	h.traces.put(key, found, found.Bytes)
	return found, nil
}
