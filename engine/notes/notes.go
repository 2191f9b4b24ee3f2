// Package notes reads and writes notes trees, the trees behind refs/notes/*, exactly as git does.
//
// A notes tree maps object IDs to blobs. Its paths are the IDs in hexadecimal, split into folders
// of two digits where a part of the tree is full ("fanout"). git decides on the fanout in every
// write, from the entries that it has read so far, so only the same steps produce the same tree:
// package notes follows git's notes.c, with the same nodes of 16 children. Entries that are not
// notes stay in place.
//
// Start at [Open]; [Tree.Find], [Tree.Set] and [Tree.Remove] open only the folders on their way,
// and [Tree.Write] only those that the fanout joins. [Clean] and [Append] edit a text as
// `git notes add` and `git notes append` do. The package knows objects and IDs, but no refs.
package notes

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Memory bounds.
const (
	// TextMax is the size in bytes of the longest note that is read or written.
	TextMax = 16 << 20

	folderBytesMax = 64 << 20 // size of one folder
	entriesMax     = 500_000  // entries of all folders that were opened
)

var (
	// ErrTooLarge says that a note, or the part of a notes tree that must be opened, exceeds a
	// bound of the package.
	ErrTooLarge = errors.New("notes: too large")
	// ErrMalformed says that the target of a notes ref is not a tree, or a tree that git cannot
	// read as notes either.
	ErrMalformed = errors.New("notes: not a notes tree")
)

// Tree is a notes tree as it was, with the changes made to it. It belongs to one goroutine.
type Tree struct {
	objects *odb.View
	root    node
	entries int // number of leaves loaded
	// others are the entries that are no notes, of the folders that were opened.
	others []other
	// folders holds the trees that were opened, by the first digits of the IDs in them: a new tree
	// is stored as a delta against the one in the same place.
	folders map[string]object.ID
}

// other is an entry that is no note.
type other struct {
	path string
	mode object.Mode
	id   object.ID
}

// Open opens the notes tree root, which may be the zero id for an empty one. Folders are opened
// when they are needed, so objects must stay open. Errors: [ErrMalformed], [ErrTooLarge].
func Open(ctx context.Context, objects *odb.View, root object.ID) (*Tree, error) {
	t := &Tree{objects: objects, folders: make(map[string]object.ID)}
	if root.IsZero() {
		return t, nil
	}
	return t, t.load(ctx, &leaf{values: []object.ID{root}}, &t.root, 0)
}

// Find returns the blobs whose contents, joined by [Tree.Text], are the note of id: none without a
// note, and more than one only where a tree that git did not write holds several. Errors:
// [ErrMalformed], [ErrTooLarge].
func (t *Tree) Find(ctx context.Context, id object.ID) ([]object.ID, error) {
	at, err := t.search(ctx, &t.root, 0, id)
	if err != nil {
		return nil, err
	}
	if found, ok := (*at.slot).(*leaf); ok && !found.isFolder && found.key == id {
		return found.values, nil
	}
	return nil, nil
}

// Set makes blob the note of id, and replaces an existing one. Errors: [ErrMalformed],
// [ErrTooLarge].
func (t *Tree) Set(ctx context.Context, id, blob object.ID) error {
	return t.insert(ctx, &t.root, 0, &leaf{key: id, values: []object.ID{blob}}, true)
}

// Remove removes the note of id and reports whether there was one. Errors: [ErrMalformed],
// [ErrTooLarge].
func (t *Tree) Remove(ctx context.Context, id object.ID) (bool, error) {
	at, err := t.search(ctx, &t.root, 0, id)
	if err != nil {
		return false, err
	}
	if found, ok := (*at.slot).(*leaf); !ok || found.isFolder || found.key != id {
		return false, nil
	}
	*at.slot = nil
	t.consolidate(id, at.level)
	return true, nil
}

// consolidate puts the last note of a node into the place of that node, from the one at level on
// upwards.
func (t *Tree) consolidate(id object.ID, level int) {
	path := []*node{&t.root}
	for n := range level {
		path = append(path, path[n][nibble(id, n)].(*node))
	}
	for n := level; n > 0; n-- {
		only, ok := path[n].only()
		if !ok {
			return
		}
		path[n-1][nibble(id, n-1)] = only
	}
}

// load reads the folder f and puts its entries below n, which is at level.
func (t *Tree) load(ctx context.Context, f *leaf, n *node, level int) error {
	data, err := t.readFolder(ctx, f.values[0])
	if err != nil {
		return err
	}
	if level > 2*f.size {
		return fmt.Errorf("folder %s lies in two places: %w", pathOf(f.key[:f.size]), ErrMalformed)
	}
	prefix := f.key[:f.size]
	t.folders[hex.EncodeToString(prefix)] = f.values[0]
	it := object.IterTree(data)
	for it.Next() {
		if t.entries++; t.entries > entriesMax {
			return fmt.Errorf("more than %d entries: %w", entriesMax, ErrTooLarge)
		}
		entry := newLeaf(prefix, &it)
		if entry == nil {
			t.others = append(t.others, other{path: pathOf(prefix) + string(it.Name), mode: it.Mode, id: it.ID})
			continue
		}
		if err := t.insert(ctx, n, level, entry, false); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read notes tree %s: %w", f.values[0], err)
	}
	return nil
}

func (t *Tree) readFolder(ctx context.Context, id object.ID) ([]byte, error) {
	if id == object.EmptyTreeID {
		return nil, nil
	}
	info, err := t.objects.Stat(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read notes tree: %w", err)
	}
	switch {
	case info.Type != object.TypeTree:
		return nil, fmt.Errorf("%s is a %s: %w", id, info.Type, ErrMalformed)
	case info.Size > folderBytesMax:
		return nil, fmt.Errorf("notes tree %s: %w", id, ErrTooLarge)
	}
	_, data, err := t.objects.Read(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read notes tree: %w", err)
	}
	return data, nil
}
