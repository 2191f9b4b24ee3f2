package engine

import (
	"context"
	"fmt"
	"slices"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/lru"
	"packhorse/odb/revwalk"
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

// Reserve waits until about sizeBytes of memory are available, reserves them, and returns the
// function that releases them; nil does not wait.
type Reserve func(ctx context.Context, sizeBytes int64) (release func(), err error)

// traceMemory reserves the memory of a last-modified trace, step by step, and takes a slot for one
// that is large. It belongs to one goroutine.
type traceMemory struct {
	slot     Slot
	reserve  Reserve
	limit    int64 // of one trace
	left     int64 // up to the limit
	admitted int64 // reserved and not yet used
	releases []func()
}

// traceStep is the size of one reservation. The first step is part of the fixed cost of a listing,
// and needs no slot.
const traceStep = 4 << 20

func newTraceMemory(limit int64, slot Slot, reserve Reserve) *traceMemory {
	return &traceMemory{slot: slot, reserve: reserve, limit: limit, left: limit, admitted: traceStep}
}

// admit reserves sizeBytes more for a trace. Errors: [LimitError]; those of reserving.
func (m *traceMemory) admit(ctx context.Context, sizeBytes int64) error {
	if m.left -= sizeBytes; m.left < 0 {
		return &LimitError{
			Limit: "bytes of memory for a listing with last commits (ask for one folder, by path)", Max: m.limit,
		}
	}
	for m.admitted -= sizeBytes; m.admitted < 0 && m.reserve != nil; {
		if len(m.releases) == 0 {
			release, err := m.slot.hold(ctx)
			if err != nil {
				return err
			}
			m.releases = append(m.releases, release)
		}
		step := max(traceStep, -m.admitted)
		release, err := m.reserve(ctx, step)
		if err != nil {
			return err
		}
		m.releases = append(m.releases, release)
		m.admitted += step
	}
	return nil
}

// release gives everything back.
func (m *traceMemory) release() {
	for _, release := range slices.Backward(m.releases) {
		release()
	}
	m.releases = nil
}

// commitKey names a commit of a pool: forks do not learn of objects that they may not read.
type commitKey struct {
	pool   odb.PoolID
	commit object.ID
}

// traces caches last-modified traces. A commit never changes, so entries never become stale. The
// trace of a new tip ends at cached commits, and shares the folders that have not changed since.
type traces = lru.Cache[traceKey, *revwalk.TracedFolder]

// traceKey names what is kept for a commit: all that is known of files, or a flat trace of a
// folder.
type traceKey struct {
	commitKey
	flat bool
	path string // of a flat trace
}

// newHistoryCache makes a cache of what walks through histories have found, of which nothing may
// take more than half.
func newHistoryCache[K comparable, V any](bytesMax int64) lru.Cache[K, V] {
	return lru.New[K, V](bytesMax, bytesMax/2)
}

// trace returns the last changes of the files at a path of a revision, or with flat those of the
// entries of a folder, from the cache or by a walk, which holds a slot if it is large. reserve
// accounts for the memory of the walk until it ends; then the cache does.
func (h *Host) trace(
	ctx context.Context, at position, path string, flat bool, slot Slot, reserve Reserve,
) (*revwalk.TracedFolder, error) {
	key := traceKey{commitKey: commitKey{at.view.Pool(), at.revision.Commit}, flat: flat}
	if flat {
		key.path = path
	}
	if known, _ := h.traces.Get(key); known.Knows(path) {
		return known, nil
	}
	memory := newTraceMemory(h.limits.TraceBytesMax, slot, reserve)
	defer memory.release()
	options := revwalk.TraceOptions{Path: path, Flat: flat}
	if h.traces.Len() > 0 {
		options.Known = func(commit object.ID) *revwalk.TracedFolder {
			earlier := key
			earlier.commit = commit
			known, _ := h.traces.Get(earlier)
			return known
		}
	}
	var found *revwalk.TracedFolder
	err := fair.Do(ctx, func(ctx context.Context) (err error) {
		options.Admit = func(sizeBytes int64) error { return memory.admit(ctx, sizeBytes) }
		found, err = revwalk.Trace(ctx, at.view, at.revision.Commit, options)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the last changes of %q: %w", path, err)
	}
	h.traces.Put(key, found, found.Bytes)
	return found, nil
}
