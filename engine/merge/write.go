package merge

import (
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
func (m *threeWay) completeFolder(n *node) error {
	f := m.folders[n.path]
	if f == nil {
		return nil
	}
	delete(m.folders, n.path)
	n.opened = true
	if f.empty() {
		n.absent = true
		return nil
	}
	id, err := m.writeFolder(n.path, f)
	if err != nil {
		return err
	}
	n.absent, n.result = false, Version{object.ModeTree, id}
	return nil
}

// writeFolder makes the tree of a folder: the resolved and the held entries, and between them the
// runs that stay.
func (m *threeWay) writeFolder(path string, f *folder) (object.ID, error) {
	replaced := namesOf(f.entries)
	for i := range f.held {
		if !replaced.have([]byte(f.held[i].Name)) {
			f.entries = append(f.entries, f.held[i])
		}
	}
	object.SortTree(f.entries)
	size := 0
	for i := range f.entries {
		size += len("100644 ") + len(f.entries[i].Name) + 1 + object.IDSize
	}
	for _, run := range f.runs {
		size += len(run)
	}
	data := make([]byte, 0, size)
	next := 0
	for _, run := range f.runs {
		copied := 0 // bytes of the run that are in data, or left out
		it := object.IterTree(run)
		for at := 0; it.Next(); at = len(run) - len(it.Rest()) {
			first := next
			for next < len(f.entries) && object.CompareEntries(f.entries[next].Name, f.entries[next].Mode.IsTree(),
				string(it.Name), it.Mode.IsTree()) < 0 {
				next++
			}
			left := replaced.have(it.Name)
			again := it.Padding > 0 || it.Mode != it.Mode.Canonical() // git stores such an entry anew
			if first == next && !left && !again {
				continue
			}
			data = append(data, run[copied:at]...)
			copied = at
			data = object.AppendTree(data, f.entries[first:next])
			if again && !left {
				data = object.AppendTreeEntry(data, &object.TreeEntry{Mode: it.Mode.Canonical(), Name: string(it.Name), ID: it.ID})
			}
			if again || left {
				copied = len(run) - len(it.Rest())
			}
		}
		data = append(data, run[copied:]...)
	}
	data = object.AppendTree(data, f.entries[next:])
	if invariants.Enabled {
		checkOrder(path, data)
	}
	predecessor := m.trees[ours]
	if path != "" {
		predecessor = object.ZeroID
		if n := m.nodes[path]; n != nil {
			predecessor = n.stages[ours].ID
		}
	}
	return m.objects.add(object.TypeTree, slices.Clip(data), predecessor)
}

// nameSet is a set of names, which most often is tiny.
type nameSet struct {
	few  []string
	many map[string]bool // nil if there are few
}

func namesOf(entries []object.TreeEntry) (s nameSet) {
	const fewMax = 4
	if len(entries) > fewMax {
		s.many = make(map[string]bool, len(entries))
	}
	for i := range entries {
		if s.many != nil {
			s.many[entries[i].Name] = true
		} else {
			s.few = append(s.few, entries[i].Name)
		}
	}
	return s
}

func (s *nameSet) have(name []byte) bool {
	if s.many != nil {
		return s.many[string(name)]
	}
	return slices.Contains(s.few, string(name))
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
