package notes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"packhorse/odb"
	"packhorse/pack/object"
)

// Write writes the trees that differ from those that were opened into q and returns the root, which
// is the empty tree when no entry is left. q must show the objects that the tree was opened on.
//
// The entries of a folder come in tree order. That is git's result too, except where git would
// write a malformed folder: it sorts entries that are not notes as if all of them were files.
//
// Errors: [ErrMalformed], [ErrTooLarge].
func (t *Tree) Write(ctx context.Context, q *odb.Quarantine) (object.ID, error) {
	w := &writer{tree: t, q: q, root: &folder{}}
	if err := w.node(ctx, &t.root, 0, 0); err != nil {
		return object.ZeroID, err
	}
	// Only now: deciding upon the fanout may have opened more folders, with more of them.
	for _, o := range t.others {
		w.root.add(o.path, object.TreeEntry{Mode: o.mode, ID: o.id}, true)
	}
	return w.write(ctx, w.root, "")
}

// folder is a tree that is being written.
type folder struct {
	entries map[string]object.TreeEntry
	folders map[string]*folder
}

// add puts an entry at path. weak ones do not replace an existing entry.
func (f *folder) add(path string, entry object.TreeEntry, weak bool) {
	name, rest, below := strings.Cut(path, "/")
	if below {
		if f.folders == nil {
			f.folders = make(map[string]*folder)
		}
		if f.folders[name] == nil {
			f.folders[name] = &folder{}
		}
		f.folders[name].add(rest, entry, weak)
		return
	}
	if f.entries == nil {
		f.entries = make(map[string]object.TreeEntry)
	}
	if _, taken := f.entries[name]; !taken || !weak {
		entry.Name = name
		f.entries[name] = entry
	}
}

// writer is one [Tree.Write].
type writer struct {
	tree *Tree
	q    *odb.Quarantine
	root *folder
}

// node adds the notes below n, at level, to the folders. fanout is the number of folders in the
// paths of the node above it.
func (w *writer) node(ctx context.Context, n *node, level, fanout int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if level%2 == 0 && level <= 2*fanout && n.isFull() {
		fanout++
	}
	for i := range n {
		// A folder that stays a folder is kept unchanged; any other is opened and replaced.
		for {
			f, ok := n[i].(*leaf)
			if !ok || !f.isFolder || level < 2*fanout {
				break
			}
			n[i] = nil
			if err := w.tree.load(ctx, f, n, level); err != nil {
				return err
			}
		}
		switch child := n[i].(type) {
		case *node:
			if err := w.node(ctx, child, level+1, fanout); err != nil {
				return err
			}
		case *leaf:
			if err := w.leaf(ctx, child, fanout); err != nil {
				return err
			}
		}
	}
	return nil
}

// isFull reports whether a node needs one more level of folders: each of its children stands for
// many notes, as far as is known.
func (n *node) isFull() bool {
	for _, child := range n {
		switch child := child.(type) {
		case *node:
		case *leaf:
			if !child.isFolder {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// leaf adds a note, or a folder that stays as it is.
func (w *writer) leaf(ctx context.Context, l *leaf, fanout int) error {
	if l.isFolder {
		path := strings.TrimSuffix(pathOf(l.key[:l.size]), "/")
		w.root.add(path, object.TreeEntry{Mode: object.ModeTree, ID: l.values[0]}, false)
		return nil
	}
	blob := l.values[0]
	if len(l.values) > 1 {
		text, err := Text(ctx, w.q.View().Linked(), l.values)
		if err != nil {
			return err
		}
		if blob, err = w.q.Write(ctx, object.TypeBlob, text, object.ZeroID); err != nil {
			return fmt.Errorf("write joined note: %w", err)
		}
	}
	path := pathOf(l.key[:fanout]) + l.key.String()[2*fanout:]
	w.root.add(path, object.TreeEntry{Mode: object.ModeBlob, ID: blob}, false)
	return nil
}

// write writes a folder, after the folders in it. The ids in it begin with the digits prefix.
func (w *writer) write(ctx context.Context, f *folder, prefix string) (object.ID, error) {
	for name, below := range f.folders {
		id, err := w.write(ctx, below, prefix+name)
		if err != nil {
			return object.ZeroID, odb.InFolder(name, err)
		}
		f.add(name, object.TreeEntry{Mode: object.ModeTree, ID: id}, false)
	}
	entries := make([]object.TreeEntry, 0, len(f.entries))
	for _, entry := range f.entries {
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(a, b object.TreeEntry) int {
		return cmp.Or(object.CompareEntries(a.Name, a.Mode.IsTree(), b.Name, b.Mode.IsTree()),
			strings.Compare(a.Name, b.Name))
	})
	id, err := w.q.Write(ctx, object.TypeTree, object.AppendTree(nil, entries), w.tree.folders[prefix])
	if err != nil {
		return object.ZeroID, fmt.Errorf("write notes tree: %w", err)
	}
	return id, nil
}
