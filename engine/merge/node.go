package merge

import (
	"slices"
	"strings"

	"packhorse/pack/object"
)

// Version is the entry of a tree at a path. The mode is as git reads it, and zero where the path is
// absent.
type Version struct {
	Mode object.Mode
	ID   object.ID
}

// node is a path that is not the same in all three trees. It may be a file in some of them and a
// folder in others.
type node struct {
	path string
	// settled says that result is the outcome of the path, or none if absent is set.
	settled bool
	absent  bool
	result  Version

	stages [3]Version
	// names is where each stage came from, which differs from path after a rename.
	names [3]string
	// files and folders are masks of the trees in which the path is one; match is that of the trees
	// that agree, 0 or two of them.
	files, folders, match uint8
	opened                bool // a folder, of which other nodes tell
	// both is set where the path is a file here and a folder there.
	both bool
	// unplaced is set where the sides do not agree on the path itself, so that it conflicts whatever
	// its content.
	misplaced bool
	kind      Kind
}

// note records the conflict of the path; the first one counts.
func (n *node) note(k Kind) {
	if n.kind == 0 {
		n.kind = k
	}
}

// folder is an opened folder.
type folder struct {
	// runs are entries as they are stored, in the order of a tree, that need no node: the same in all
	// three trees, or changed by us alone.
	runs [][]byte
	// held are entries of one side that need no node: the other side did not change them.
	held []object.TreeEntry
	// entries are those that the merge decided on.
	entries []object.TreeEntry
}

// empty reports whether nothing is left in the folder.
func (f *folder) empty() bool {
	return len(f.held) == 0 && len(f.entries) == 0 &&
		!slices.ContainsFunc(f.runs, func(run []byte) bool { return len(run) > 0 })
}

// has returns the entry of a name that has no node.
func (f *folder) has(name string) (Version, bool) {
	for i := range f.held {
		if e := &f.held[i]; e.Name == name {
			return Version{e.Mode, e.ID}, true
		}
	}
	for _, run := range f.runs {
		it := object.IterTree(run)
		for it.Next() {
			if string(it.Name) == name {
				return Version{it.Mode.Canonical(), it.ID}, true
			}
		}
	}
	return Version{}, false
}

// known reports whether the merge has met a path.
func (m *threeWay) known(path string) bool {
	if m.nodes[path] != nil {
		return true
	}
	_, ok := m.unchanged(path)
	return ok
}

// unchanged returns the entry of an opened folder at path if it has no node.
func (m *threeWay) unchanged(path string) (Version, bool) {
	above, name := split(path)
	if f := m.folders[above]; f != nil {
		return f.has(name)
	}
	return Version{}, false
}

// node returns the node of a path, made of the unchanged entry if need be, nil when the path is not
// known.
func (m *threeWay) node(path string) *node {
	if n := m.nodes[path]; n != nil {
		return n
	}
	v, ok := m.unchanged(path)
	if !ok {
		return nil
	}
	n := &node{path: path, settled: true, result: v}
	m.nodes[path] = n
	return n
}

// split cuts a path into the folder above, "" for the root, and the name in it.
func split(path string) (above, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// above returns the folder that a path lies in, "" for the root.
func above(path string) string {
	dir, _ := split(path)
	return dir
}

// freePath returns an unused path, for a file of the side called label that cannot stay at path.
func (m *threeWay) freePath(path, label string) string {
	free := path + "~" + strings.ReplaceAll(label, "/", "_")
	for i, stem := 0, free; m.known(free); i++ {
		free = stem + "_" + itoa(i)
	}
	return free
}
