package merge

import (
	"context"
	"slices"
	"strings"
)

// followRenames finds the renames of each side, moves files into folders that the other side
// renamed, and brings the versions of a renamed file together.
func (m *threeWay) followRenames(ctx context.Context) error {
	searched := false
	compare := newComparer(m.objects)
	for side := ours; side <= theirs; side++ {
		r := &m.renames[side]
		if len(r.pairs) == 0 || len(r.relevant) == 0 {
			continue
		}
		searched = true
		if err := r.findRenames(ctx, compare, m.RenameMax); err != nil {
			return err
		}
	}
	if !searched {
		return nil
	}
	if m.depth == 0 {
		m.settleFolders()
	}
	return m.combine(ctx, m.collectRenames())
}

// collision is a path that files of renamed folders would move to.
type collision struct {
	sources map[string]bool
	told    bool
}

// landings returns where each path that a side added or renamed would go by the folders that the
// other side renamed.
func (m *threeWay) landings(side int) map[string]*collision {
	folders := m.renames[ours+theirs-side].folders
	if len(folders) == 0 {
		return nil
	}
	found := make(map[string]*collision)
	for _, p := range m.renames[side].pairs {
		if p.removed() {
			continue
		}
		from, to, ok := renamedAbove(folders, p.new.path)
		if !ok {
			continue
		}
		path := moved(p.new.path, from, to)
		c := found[path]
		if c == nil {
			c = &collision{sources: make(map[string]bool)}
			found[path] = c
		}
		c.sources[p.new.path] = true
	}
	return found
}

// renamedAbove returns the nearest folder above path that was renamed, and its new name.
func renamedAbove(folders map[string]string, path string) (from, to string, ok bool) {
	for dir := above(path); dir != ""; dir = above(dir) {
		if to, ok := folders[dir]; ok {
			return dir, to, true
		}
	}
	return "", "", false
}

func moved(path, from, to string) string {
	return join(to, strings.TrimPrefix(path[len(from):], "/"))
}

// collectRenames returns the renames of both sides, and the files that follow a renamed folder, in
// the order of their old paths.
func (m *threeWay) collectRenames() []*pair {
	var landings [3]map[string]*collision
	for side := ours; side <= theirs; side++ {
		landings[side] = m.landings(side)
	}
	var all []*pair
	for side := ours; side <= theirs; side++ {
		for _, p := range m.renames[side].pairs {
			if p.removed() {
				continue
			}
			path := m.landing(p.new.path, side, &landings)
			if !p.renamed && path == "" {
				continue
			}
			if path != "" {
				m.moveAfterFolder(p, path)
			}
			p.side = side
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b *pair) int { return strings.Compare(a.old.path, b.old.path) })
	return all
}

// landing returns where a path of side has to go as the other side renamed a folder above it, "" if
// it stays.
func (m *threeWay) landing(path string, side int, landings *[3]map[string]*collision) string {
	other := ours + theirs - side
	folders := m.renames[other].folders
	if len(folders) == 0 || landings[other][path] != nil {
		return ""
	}
	from, to, ok := renamedAbove(folders, path)
	if !ok {
		return ""
	}
	if _, ok := m.renames[side].folders[to]; ok {
		return "" // the side renamed that one in its turn
	}
	target := moved(path, from, to)
	c := landings[side][target]
	switch {
	case c.told:
		return ""
	case m.inWay(target, side):
		c.told = true
		m.unplaced = append(m.unplaced, Conflict{Path: target, Kind: DirectoryInWay})
		return ""
	case len(c.sources) > 1:
		c.told = true
		m.unplaced = append(m.unplaced, Conflict{Path: target, Kind: DirectoryCollision})
		return ""
	}
	return target
}

// inWay reports whether a side has something at path.
func (m *threeWay) inWay(path string, side int) bool {
	n := m.nodes[path]
	if n == nil {
		_, ok := m.unchanged(path)
		return ok
	}
	return n.settled || (n.files|n.folders)&(1<<side) != 0
}

// moveAfterFolder moves the added file of a pair to path. The move is only an assumption, so the
// path conflicts.
func (m *threeWay) moveAfterFolder(p *pair, path string) {
	n := m.nodes[p.new.path]
	m.makeFolders(path, n.files)
	if n.folders == 0 {
		delete(m.nodes, n.path)
	} else { // a folder of the base stood here too; it stays behind
		stays := *n
		stays.files, stays.settled = 0, true
		for side := range stays.stages {
			if stays.folders&(1<<side) == 0 {
				stays.stages[side] = Version{}
			}
		}
		m.nodes[stays.path] = &stays
		n.folders, n.stages[base] = 0, Version{}
		n.both, n.absent = false, false
	}
	if there := m.nodes[path]; there != nil {
		side := int(n.files >> 1)
		there.files |= n.files
		there.both = there.both || there.folders != 0
		there.names[side], there.stages[side] = n.names[side], n.stages[side]
		n = there
	} else {
		n.path = path
		m.nodes[path] = n
	}
	n.misplaced = true
	n.note(FileLocation)
	p.new.path = path
}

// makeFolders makes nodes of the folders above a path that have none yet.
func (m *threeWay) makeFolders(path string, mask uint8) {
	for dir := above(path); dir != "" && m.node(dir) == nil; dir = above(dir) {
		m.nodes[dir] = &node{path: dir, folders: mask}
	}
}
