package packgen

import (
	"context"
	"fmt"
	"slices"

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
	noFiles bool // regular files are not asked for, and may be missing in what take returns
	readers *inorder.Workers[[]treeToRead, [][]byte]
	batches []treeBatch // in order, the first is the one that take reads
	taken   int         // of batches[0]
	group   int         // the group, and the tree in it, at the start of the next batch
	tree    int
}

// treeBatch is a list of trees that are read together.
type treeBatch struct {
	trees []treeToRead
	read  *inorder.Task[[]treeToRead, [][]byte] // see read
}

// treeToRead is a tree, of which the folders may suffice.
type treeToRead struct {
	handle
	folders bool
}

const (
	batchCount    = 128
	batchBytesMax = 1 << 20
	batchesAhead  = 4
)

func (a *readAhead) start(ctx context.Context, inv *inventory, noFiles bool) {
	a.inv, a.noFiles = inv, noFiles
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
		if data, err = b.trees[a.taken].read(ctx, a.inv); err != nil {
			return nil, err
		}
	}
	if a.taken++; a.taken == len(b.trees) {
		a.batches = a.batches[1:]
		a.taken = 0
	}
	return data, nil
}

// nextBatch collects the next trees; there is at least one. The versions of a folder are compared
// with those of the edge, of which all entries are asked for.
func (a *readAhead) nextBatch(groups []treeGroup) []treeToRead {
	var trees []treeToRead
	for a.group < len(groups) && len(trees) < batchCount {
		g := &groups[a.group]
		for a.tree < g.len() && len(trees) < batchCount {
			trees = append(trees, treeToRead{g.tree(a.tree), a.noFiles && len(g.hidden) == 0})
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
func (a *readAhead) read(ctx context.Context, trees []treeToRead) ([][]byte, error) {
	data, size := make([][]byte, len(trees)), 0
	for i, tree := range trees {
		if size > batchBytesMax || a.inv.pace.Rest(ctx) != nil {
			break
		}
		var err error
		if data[i], err = tree.read(ctx, a.inv); err != nil {
			return nil, err
		}
		size += len(data[i])
	}
	return data, nil
}

// read returns the content of the tree, or the folders in it; not nil.
func (t treeToRead) read(ctx context.Context, inv *inventory) ([]byte, error) {
	if !t.folders {
		return readTree(ctx, inv, t.handle)
	}
	id, err := inv.id(ctx, t.handle)
	if err != nil {
		return nil, err
	}
	if folders, ok := inv.view.Folders(id); ok {
		return folders, nil
	}
	data, err := readTree(ctx, inv, t.handle)
	if err != nil {
		return nil, err
	}
	folders, err := object.AppendFolders(make([]byte, 0), data)
	if err != nil {
		return data, nil //nolint:nilerr // who walks over it says what is wrong
	}
	folders = slices.Clip(folders)
	inv.view.KeepFolders(id, folders)
	return folders, nil
}

func readTree(ctx context.Context, inv *inventory, tree handle) ([]byte, error) {
	t, data, err := inv.read(ctx, tree)
	if err == nil && t != object.TypeTree {
		err = fmt.Errorf("%w: a %s instead of a tree", segment.ErrFormat, t)
	}
	return data, err
}
