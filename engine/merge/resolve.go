package merge

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// resolve resolves each path and writes each opened folder, the deepest first, and returns the
// root.
func (m *threeWay) resolve(ctx context.Context) (object.ID, error) {
	nodes := slices.SortedFunc(maps.Values(m.nodes), func(a, b *node) int { return compareDeep(b.path, a.path) })
	for _, n := range nodes {
		if err := fair.Pause(ctx); err != nil {
			return object.ZeroID, err
		}
		if err := m.completeFolder(n); err != nil {
			return object.ZeroID, err
		}
		if n.settled {
			m.record(n.path, n.result, n.absent)
			continue
		}
		if err := m.settle(ctx, n); err != nil {
			return object.ZeroID, err
		}
	}
	root := m.folders[""]
	return m.writeFolder("", root)
}

// compareDeep orders paths so that a folder comes right before its entries, as a name with a slash
// at its end.
func compareDeep(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return cmp.Compare(a[i], b[i])
		}
	}
	end := func(s string) byte {
		if len(s) > n {
			return s[n]
		}
		return '/'
	}
	if c := cmp.Compare(end(a), end(b)); c != 0 {
		return c
	}
	return cmp.Compare(len(a), len(b))
}

// settle decides on a path that is not the same in all three trees.
func (m *threeWay) settle(ctx context.Context, n *node) error {
	aside := 0 // the side whose file had to make room for a folder
	if n.folders != 0 {
		m.record(n.path, n.result, n.absent)
		if n.files == 0 {
			return nil
		}
	}
	if n.both {
		if n.absent = n.absent || n.result.Mode == 0; n.absent {
			n.keepFiles() // nothing is left in the folder
			n.both, n.absent = false, false
		} else {
			if n.files == baseBit {
				return nil // the file is gone, the folder in its place was recorded
			}
			n, aside = m.makeRoom(n)
		}
	}
	switch {
	case n.match != 0:
		m.settleMatch(n)
	case n.files&(oursBit|theirsBit) == oursBit|theirsBit:
		if n.stages[ours].Mode&object.ModeMask != n.stages[theirs].Mode&object.ModeMask {
			return m.settleTypes(n)
		}
		if err := m.settleContents(ctx, n, aside); err != nil {
			return err
		}
	case n.files == baseBit|oursBit, n.files == baseBit|theirsBit:
		m.settleDeletion(n)
	case n.files == oursBit, n.files == theirsBit:
		n.result = n.stages[n.files>>1]
		n.settled = !n.both && !n.misplaced
	default: // both removed or moved it
		n.absent, n.result = true, Version{}
		n.settled = !n.misplaced
	}
	if !n.settled {
		m.conflicted[n.path] = n
	}
	m.record(n.path, n.result, n.absent)
	return nil
}

// keepFiles forgets the trees in which the node is a folder.
func (n *node) keepFiles() {
	n.match &^= n.folders
	n.folders = 0
	for side := range n.stages {
		if n.files&(1<<side) == 0 {
			n.stages[side] = Version{}
		}
	}
}

// makeRoom moves the file of a node to another name, because a folder has its path now, and returns
// it and its side.
func (m *threeWay) makeRoom(n *node) (*node, int) {
	side := ours
	if n.folders&oursBit != 0 {
		side = theirs
	}
	file := *n
	file.keepFiles()
	file.result, file.absent = Version{}, false
	file.path = m.freePath(n.path, m.label(side))
	file.note(FileDirectory)
	m.nodes[file.path] = &file
	n.files = 0
	return &file, side
}

// settleMatch is for a path that two of the trees agree on.
func (m *threeWay) settleMatch(n *node) {
	n.settled = !n.both && !n.misplaced
	if n.match == oursBit|theirsBit {
		n.result = n.stages[ours]
		return
	}
	side := ours
	if n.match == baseBit|oursBit {
		side = theirs
	}
	n.result = n.stages[side]
	if n.absent = n.result.Mode == 0; n.absent {
		n.settled = true
	}
}

// settleTypes resolves a path with different types on both sides: at least one of them gets another
// name.
func (m *threeWay) settleTypes(n *node) error {
	n.note(DistinctTypes)
	if m.depth > 0 {
		n.settled, n.result = false, n.stages[base]
		n.absent = n.result.Mode == 0
		m.conflicted[n.path] = n
		m.record(n.path, n.result, n.absent)
		return nil
	}
	oursRegular, theirsRegular := n.stages[ours].Mode.IsRegular(), n.stages[theirs].Mode.IsRegular()
	path, oursPath, theirsPath := n.path, n.path, n.path
	if oursRegular || !theirsRegular {
		oursPath = m.freePath(path, m.Ours)
	}
	if !oursRegular {
		theirsPath = m.freePath(path, m.Theirs)
	}
	delete(m.nodes, path)
	for side, at := range [3]string{ours: oursPath, theirs: theirsPath} {
		if side == base {
			continue
		}
		half := *n
		half.path, half.settled, half.absent = at, false, false
		half.result, half.stages, half.files = n.stages[side], [3]Version{}, 1<<side
		half.stages[side] = n.stages[side]
		if n.stages[base].Mode&object.ModeMask == half.result.Mode&object.ModeMask {
			half.stages[base] = n.stages[base]
			half.files |= baseBit
		}
		m.nodes[at], m.conflicted[at] = &half, &half
		m.record(at, half.result, false)
	}
	return nil
}

// settleContents is for a file that both sides have.
func (m *threeWay) settleContents(ctx context.Context, n *node, aside int) error {
	merged, clean, kind, err := m.mergeFiles(ctx, n.stages, n.names, 2*m.depth)
	if err != nil {
		return err
	}
	if n.files == oursBit|theirsBit && kind == BothChanged {
		kind = AddAdd
	}
	n.settled = clean && !n.both && !n.misplaced
	n.result = merged
	n.absent = merged.Mode == 0
	if clean && n.both {
		n.files = 1 << aside
		n.stages[aside] = merged
	}
	if !clean {
		n.note(kind)
	}
	return nil
}

// settleDeletion is for a file that one side changed or renamed, and that the other removed.
func (m *threeWay) settleDeletion(n *node) {
	side := ours
	if n.files&theirsBit != 0 {
		side = theirs
	}
	n.result = n.stages[side]
	if m.depth > 0 {
		n.result = n.stages[base]
	}
	n.settled = false
	n.note(ModifyDelete)
}
