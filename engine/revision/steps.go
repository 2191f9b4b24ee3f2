package revision

import (
	"context"
	"fmt"

	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/lru"
	"packhorse/pack/object"
)

// Jumps remembers long ways along first parents, within a budget. A commit names its parents by
// their hashes, so a jump never becomes stale. It may be used concurrently; nil remembers nothing.
//
// A jump leads from one anchor to the next one that its first parents reach. Anchors are the
// commits whose ID ends in six zero bits, about one of 64: where they lie does not depend on where
// a walk began, so that a walk from a newer tip soon meets the jumps of an earlier one.
type Jumps struct {
	known lru.Cache[jumpKey, jump]
}

// jumpKey names a commit of a pool: forks do not learn of objects that they may not read.
type jumpKey struct {
	pool   odb.PoolID
	commit object.ID
}

// jump is the way to the next anchor, or, where that is zero, to the root.
type jump struct {
	next  object.ID
	steps int
}

// jumpBytes is what a jump costs: its key twice, its value, and the list that holds them.
const jumpBytes = 240

// NewJumps returns an empty memory of bytesMax bytes.
func NewJumps(bytesMax int64) *Jumps {
	return &Jumps{known: lru.New[jumpKey, jump](bytesMax, jumpBytes)}
}

func isAnchor(id object.ID) bool { return id[object.IDSize-1]&63 == 0 }

// walk is at a commit, which the steps of an expression move.
type walk struct {
	view  *odb.View // of the commit: it need not be asked for what the commit reaches
	jumps *Jumps
	at    object.ID
}

// follow takes all steps of an expression. Errors: [ErrNotFound].
func (w *walk) follow(ctx context.Context, e *Expression) error {
	for i, s := range e.steps {
		switch s.kind {
		case stepPeel: // it is a commit already
		case stepAncestor:
			done, err := w.back(ctx, s.count)
			if err != nil {
				return err
			}
			if done < s.count {
				return e.missingStep(i, done, "first-parent ancestor")
			}
		case stepParent:
			row, err := w.row(ctx)
			if err != nil {
				return err
			}
			if s.count > len(row.Parents) {
				return e.missingStep(i, len(row.Parents), "parent")
			}
			w.at = row.Parents[s.count-1]
		}
	}
	return nil
}

func (w *walk) row(ctx context.Context) (odb.GraphRow, error) {
	if err := fair.Pause(ctx); err != nil {
		return odb.GraphRow{}, err
	}
	row, err := w.view.Graph(ctx, w.at)
	if err != nil {
		return row, fmt.Errorf("graph row of commit %s: %w", w.at, err)
	}
	return row, nil
}

// back moves the walk along count first parents, and returns how many there were.
func (w *walk) back(ctx context.Context, count int) (done int, err error) {
	var anchor object.ID // the last one on the way, and at which step; zero for none
	var since int
	for done < count {
		if isAnchor(w.at) {
			if !anchor.IsZero() {
				w.learn(anchor, jump{w.at, done - since})
			}
			anchor, since = w.at, done
			known, ok := w.recall(w.at)
			if ok && known.next.IsZero() && known.steps < count-done {
				return done + known.steps, nil
			}
			if ok && !known.next.IsZero() && known.steps <= count-done {
				if err := fair.Pause(ctx); err != nil {
					return done, err
				}
				w.at, done = known.next, done+known.steps
				anchor = object.ZeroID // that jump is known
				continue
			}
		}
		row, err := w.row(ctx)
		if err != nil {
			return done, err
		}
		if len(row.Parents) == 0 {
			if !anchor.IsZero() {
				w.learn(anchor, jump{steps: done - since})
			}
			return done, nil
		}
		w.at, done = row.Parents[0], done+1
	}
	return done, nil
}

func (w *walk) recall(id object.ID) (jump, bool) {
	if w.jumps == nil {
		return jump{}, false
	}
	return w.jumps.known.Get(jumpKey{w.view.Pool(), id})
}

func (w *walk) learn(anchor object.ID, to jump) {
	if w.jumps != nil {
		w.jumps.known.Put(jumpKey{w.view.Pool(), anchor}, to, jumpBytes)
	}
}
