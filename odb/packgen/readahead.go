package packgen

import (
	"context"
	"fmt"

	"packhorse/odb/fair"
	"packhorse/odb/rescue"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// readAhead reads the trees of groups ahead of their use, on two goroutines. Versions of a folder
// are deltas of each other, so a goroutine reads many at once.
type readAhead struct {
	inv     *inventory
	work    chan *treeBatch
	readers rescue.Group
	batches []*treeBatch // in order, the first is the one that take reads
	taken   int          // of batches[0]
	group   int          // the group, and the tree in it, at the start of the next batch
	tree    int
}

// treeBatch is a list of trees with their contents, which are valid when done is closed. A nil
// content was too large to hold; take reads it.
type treeBatch struct {
	trees []handle
	data  [][]byte
	err   error
	done  chan struct{}
}

const (
	batchCount    = 128
	batchBytesMax = 1 << 20
	batchesAhead  = 4
)

func (a *readAhead) start(ctx context.Context, inv *inventory) {
	a.inv = inv
	a.work = make(chan *treeBatch, batchesAhead)
	for range 2 {
		a.readers.Go(func() error {
			for b := range a.work {
				b.err = rescue.Do(func() error {
					return fair.Do(fair.Apart(ctx), func(ctx context.Context) error { return b.read(ctx, inv) })
				})
				close(b.done)
			}
			return nil
		})
	}
}

// stop waits for the goroutines. Before it, the caller should end the context that start was given.
func (a *readAhead) stop() {
	close(a.work)
	_ = a.readers.Wait() // the batches hold their errors
}

// take returns the content of the next tree of groups.
func (a *readAhead) take(ctx context.Context, groups []treeGroup) ([]byte, error) {
	for len(a.batches) < batchesAhead && a.group < len(groups) {
		b := a.nextBatch(groups)
		a.batches = append(a.batches, b)
		a.work <- b
	}
	b := a.batches[0]
	if err := restUntil(ctx, b.done); err != nil {
		return nil, err
	}
	if b.err != nil {
		return nil, b.err
	}
	data := b.data[a.taken]
	b.data[a.taken] = nil
	if data == nil {
		var err error
		if data, err = readTree(ctx, a.inv, b.trees[a.taken]); err != nil {
			return nil, err
		}
	}
	if a.taken++; a.taken == len(b.trees) {
		a.batches = a.batches[1:]
		a.taken = 0
	}
	return data, nil
}

// restUntil returns when another goroutine has closed done. It releases the turn if that takes
// time. Errors: that of ctx.
func restUntil(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	return fair.Rest(ctx, func() error {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// nextBatch collects the next trees; there is at least one.
func (a *readAhead) nextBatch(groups []treeGroup) *treeBatch {
	b := &treeBatch{done: make(chan struct{})}
	for a.group < len(groups) && len(b.trees) < batchCount {
		g := &groups[a.group]
		for a.tree < g.len() && len(b.trees) < batchCount {
			b.trees = append(b.trees, g.tree(a.tree))
			a.tree++
		}
		if a.tree == g.len() {
			a.group++
			a.tree = 0
		}
	}
	b.data = make([][]byte, len(b.trees))
	return b
}

func (b *treeBatch) read(ctx context.Context, inv *inventory) (err error) {
	size := 0
	for i, tree := range b.trees {
		if size > batchBytesMax || inv.pace.Rest(ctx) != nil {
			return nil
		}
		if b.data[i], err = readTree(ctx, inv, tree); err != nil {
			return err
		}
		size += len(b.data[i])
	}
	return nil
}

func readTree(ctx context.Context, inv *inventory, tree handle) ([]byte, error) {
	t, data, err := inv.read(ctx, tree)
	if err == nil && t != object.TypeTree {
		err = fmt.Errorf("%w: a %s instead of a tree", segment.ErrFormat, t)
	}
	return data, err
}
