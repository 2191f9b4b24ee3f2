package packgen

import (
	"context"
	"fmt"

	"packhorse/odb/fair"
	"packhorse/odb/inorder"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// readAhead reads the trees of groups ahead of their use, on two goroutines. Versions of a folder
// are deltas of each other, so a goroutine reads many at once. Groups follow from what was read, so
// that they are no sequence for inorder.Map.
type readAhead struct {
	inv     *inventory
	readers *inorder.Workers[[]handle, [][]byte]
	batches []treeBatch // in order, the first is the one that take reads
	taken   int         // of batches[0]
	group   int         // the group, and the tree in it, at the start of the next batch
	tree    int
}

// treeBatch is a list of trees that are read together.
type treeBatch struct {
	trees []handle
	read  *inorder.Task[[]handle, [][]byte] // see read
}

const (
	batchCount    = 128
	batchBytesMax = 1 << 20
	batchesAhead  = 4
)

func (a *readAhead) start(ctx context.Context, inv *inventory) {
	a.inv = inv
	a.readers = inorder.Start(fair.Apart(ctx), inorder.Options{Workers: 2, Ahead: batchesAhead}, a.read)
}

// stop waits for the goroutines. Before it, the caller should end the context that start was given.
func (a *readAhead) stop() { a.readers.Stop() }

// take returns the content of the next tree of groups.
func (a *readAhead) take(ctx context.Context, groups []treeGroup) ([]byte, error) {
	for len(a.batches) < batchesAhead && a.group < len(groups) {
		trees := a.nextBatch(groups)
		a.batches = append(a.batches, treeBatch{trees, a.readers.Add(ctx, trees)})
	}
	b := &a.batches[0]
	contents, err := b.read.Wait(ctx)
	if err != nil {
		return nil, err
	}
	data := (*contents)[a.taken]
	(*contents)[a.taken] = nil
	if data == nil {
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

// nextBatch collects the next trees; there is at least one.
func (a *readAhead) nextBatch(groups []treeGroup) []handle {
	var trees []handle
	for a.group < len(groups) && len(trees) < batchCount {
		g := &groups[a.group]
		for a.tree < g.len() && len(trees) < batchCount {
			trees = append(trees, g.tree(a.tree))
			a.tree++
		}
		if a.tree == g.len() {
			a.group++
			a.tree = 0
		}
	}
	return trees
}

// read returns the contents of trees; nil for those that would be too much to hold, which take
// reads.
func (a *readAhead) read(ctx context.Context, trees []handle) ([][]byte, error) {
	data, size := make([][]byte, len(trees)), 0
	for i, tree := range trees {
		if size > batchBytesMax || a.inv.pace.Rest(ctx) != nil {
			break
		}
		var err error
		if data[i], err = readTree(ctx, a.inv, tree); err != nil {
			return nil, err
		}
		size += len(data[i])
	}
	return data, nil
}

func readTree(ctx context.Context, inv *inventory, tree handle) ([]byte, error) {
	t, data, err := inv.read(ctx, tree)
	if err == nil && t != object.TypeTree {
		err = fmt.Errorf("%w: a %s instead of a tree", segment.ErrFormat, t)
	}
	return data, err
}
