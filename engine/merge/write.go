package merge

import (
	"context"
	"slices"

	"packhorse/pack/invariants"
	"packhorse/pack/object"
)

// record puts an entry into the folder that a path lies in.
func (m *threeWay) record(path string, v Version, absent bool) {
	dir, name := split(path)
	f := m.folders[dir]
	if f == nil {
		f = &folder{}
		m.folders[dir] = f
	}
	if !absent {
		f.entries = append(f.entries, object.TreeEntry{Mode: v.Mode, Name: name, ID: v.ID})
	}
}

// completeFolder makes the folder at its path the result of a node, if the folder was opened;
// everything in it has been resolved.
func (m *threeWay) completeFolder(ctx context.Context, n *node) error {
	f := m.folders[n.path]
	if f == nil {
		return nil
	}
	delete(m.folders, n.path)
	n.opened = true
	if len(f.same) == 0 && len(f.held) == 0 && len(f.entries) == 0 {
		n.absent = true
		return nil
	}
	id, err := m.writeFolder(ctx, n.path, f)
	if err != nil {
		return err
	}
	n.absent, n.result = false, Version{object.ModeTree, id}
	return nil
}

// writeFolder makes the tree of a folder: the resolved and the held entries, and between them the
// entries that are the same in all three trees.
func (m *threeWay) writeFolder(_ context.Context, path string, f *folder) (object.ID, error) {
	replaced := make(map[string]bool, len(f.entries))
	for i := range f.entries {
		replaced[f.entries[i].Name] = true
	}
	for i := range f.held {
		if !replaced[f.held[i].Name] {
			f.entries = append(f.entries, f.held[i])
		}
	}
	object.SortTree(f.entries)
	size := 0
	for i := range f.entries {
		size += len("100644 ") + len(f.entries[i].Name) + 1 + object.IDSize
	}
	for _, run := range f.same {
		size += len(run)
	}
	data := make([]byte, 0, size)
	next := 0
	for _, run := range f.same {
		it := object.IterTree(run)
		for it.Next() {
			e := object.TreeEntry{Mode: it.Mode.Canonical(), Name: string(it.Name), ID: it.ID}
			for next < len(f.entries) &&
				object.CompareEntries(f.entries[next].Name, f.entries[next].Mode.IsTree(), e.Name, e.Mode.IsTree()) < 0 {
				data = object.AppendTreeEntry(data, &f.entries[next])
				next++
			}
			if !replaced[e.Name] {
				data = object.AppendTreeEntry(data, &e)
			}
		}
	}
	for ; next < len(f.entries); next++ {
		data = object.AppendTreeEntry(data, &f.entries[next])
	}
	if invariants.Enabled {
		checkOrder(path, data)
	}
	var predecessor object.ID
	if n := m.nodes[path]; n != nil {
		predecessor = n.stages[ours].ID
	}
	return m.objects.add(object.TypeTree, slices.Clip(data), predecessor)
}

// checkOrder asserts that a folder has its entries in git's order, each once.
func checkOrder(path string, data []byte) {
	var last object.TreeIter
	it := object.IterTree(data)
	for first := true; it.Next(); first = false {
		invariants.Check(first || object.CompareNames(last.Name, last.Mode.IsTree(), it.Name, it.Mode.IsTree()) < 0,
			"merge: in folder %q, %q stands behind %q", path, it.Name, last.Name)
		last = it
	}
	invariants.Check(it.Err() == nil, "merge: folder %q: %v", path, it.Err())
}
