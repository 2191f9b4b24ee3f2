package merge

import (
	"context"
	"unsafe"

	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// collect opens every folder that the sides changed and makes a node of each path that is not the
// same in all three trees.
func (m *threeWay) collect(ctx context.Context) error {
	if err := m.open(ctx, "", m.trees, 0); err != nil {
		return err
	}
	return m.openPutOff(ctx)
}

// Folders of which one side renamed files away. While the walk is inside one that exists on that
// side no more, the mask of the side that still has it is handed down; it is allBits once that side
// has put a file there, which may have to follow.
type vanished = uint8

// open walks a folder that is not the same in all three trees.
func (m *threeWay) open(ctx context.Context, dir string, trees [3]object.ID, gone vanished) error {
	if err := fair.Pause(ctx); err != nil {
		return err
	}
	var data [3][]byte
	var err error
	if data[base], err = m.objects.baseTree(ctx, trees[base]); err != nil {
		return err
	}
	if data[ours], err = m.objects.tree(ctx, trees[ours]); err != nil {
		return err
	}
	if data[theirs], err = m.objects.tree(ctx, trees[theirs]); err != nil {
		return err
	}
	different, runs, err := compareEntries(data)
	if err != nil {
		return err
	}
	f := &folder{runs: runs}
	m.folders[dir] = f
	if gone == oursBit || gone == theirsBit {
		for i := range different {
			if files, _ := different[i].masks(); files == gone { // never of a run
				gone = allBits
				break
			}
		}
	}
	for i := range different {
		d := &different[i]
		if d.ours != nil {
			err = m.meetRun(ctx, dir, f, d.ours, gone)
		} else {
			err = m.meet(ctx, dir, f, &d.triple, gone)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// meetRun leaves a run of names that only we changed as it is, unless folders in it are to be
// opened: then it meets each of its names.
func (m *threeWay) meetRun(ctx context.Context, dir string, f *folder, run *oursRun, gone vanished) error {
	if !run.folders {
		return nil
	}
	if gone != allBits && !m.renames[ours].mustOpen {
		m.renames[ours].putOff = append(m.renames[ours].putOff, putOff{dir: dir, folder: f, run: run, gone: gone})
		return m.reserve(ctx, heldBytes)
	}
	return m.meetNames(ctx, dir, f, run, gone)
}

// meetNames meets each name of a run, which leaves its folder.
func (m *threeWay) meetNames(ctx context.Context, dir string, f *folder, run *oursRun, gone vanished) error {
	f.runs[run.index] = nil
	for t := range run.names() {
		if err := m.meet(ctx, dir, f, t, gone); err != nil {
			return err
		}
	}
	return nil
}

// reserve reserves memory for a path. The request's memory is reserved a MiB at a time.
func (m *threeWay) reserve(ctx context.Context, sizeBytes int64) error {
	before := m.pathBytes
	m.pathBytes += sizeBytes
	switch {
	case m.pathBytes > m.PathBytesMax:
		return ErrManyPaths
	case m.pathBytes>>20 == before>>20:
		return nil
	}
	return fair.Need(ctx, pathsFrom+m.pathBytes)
}

// pathsFrom is the memory of a merge without its paths.
const pathsFrom = 8 << 20

// nodeBytes is the approximate memory of a node, with its entries in maps and its conflict.
const nodeBytes = int64(unsafe.Sizeof(node{})) + 128

// heldBytes is the approximate memory of a name that is held or put off.
const heldBytes = int64(unsafe.Sizeof(putOff{})+unsafe.Sizeof(triple{})) + 32

// meet decides on a name of a folder where that needs no more than a look, and otherwise makes a
// node of it and walks it if it is a folder that must be opened.
func (m *threeWay) meet(ctx context.Context, dir string, f *folder, t *triple, gone vanished) error {
	files, folders := t.masks()
	match := t.agreeing()
	if winner, ok := trivial(match, files); ok {
		m.hold(dir, f, t, winner)
		return m.reserve(ctx, heldBytes)
	}
	// A folder that one side did not touch, or does not have, is the other side's to change.
	side := 0
	switch match {
	case baseBit | oursBit:
		side = theirs
	case baseBit | theirsBit:
		side = ours
	}
	if folders == allBits && side != 0 && gone != allBits && !m.renames[side].mustOpen {
		m.renames[side].putOff = append(m.renames[side].putOff, putOff{dir: dir, folder: f, triple: t, gone: gone})
		return m.reserve(ctx, heldBytes)
	}
	n := m.newNode(dir, t)
	if err := m.reserve(ctx, nodeBytes+int64(len(n.path))); err != nil {
		return err
	}
	gone = m.noteCandidates(n, dir, t, gone)
	if n.folders == 0 {
		return nil
	}
	if n.files == 0 && (n.folders == oursBit || n.folders == theirsBit) {
		n.match = allBits &^ n.folders
		side = int(n.folders / 2)
	}
	if gone != allBits && side != 0 && !m.renames[side].mustOpen {
		m.renames[side].putOff = append(m.renames[side].putOff, putOff{node: n, gone: gone})
		return nil
	}
	n.match &= n.files
	return m.open(ctx, n.path, n.folderTrees(), gone)
}

// newNode makes a node of a name that is not decided on.
func (m *threeWay) newNode(dir string, t *triple) *node {
	n := &node{path: join(dir, t.name), stages: t.versions, match: t.agreeing()}
	m.nodes[n.path] = n
	n.files, n.folders = t.masks()
	n.names = [3]string{n.path, n.path, n.path}
	n.both = n.files != 0 && n.folders != 0
	n.absent = n.folders != 0
	return n
}

// hold takes the version of a side for a name that no rename concerns.
func (m *threeWay) hold(dir string, f *folder, t *triple, side int) {
	v := t.versions[side]
	f.held = append(f.held, object.TreeEntry{Mode: v.Mode, Name: t.name, ID: v.ID})
	if side == theirs {
		m.taken = append(m.taken, join(dir, t.name))
	}
}

// folderTrees returns the trees that a node is in those of the three where it is a folder.
func (n *node) folderTrees() (trees [3]object.ID) {
	for side, v := range n.stages {
		if n.folders&(1<<side) != 0 {
			trees[side] = v.ID
		}
	}
	return trees
}

// trivial returns the side whose version a name comes to, where no more than a look at the three is
// needed to know.
func trivial(match, files uint8) (side int, ok bool) {
	switch {
	case match == allBits:
		return base, true
	case files != allBits:
		return 0, false
	case match == oursBit|theirsBit, match == baseBit|theirsBit:
		return ours, true
	case match == baseBit|oursBit:
		return theirs, true
	default:
		return 0, false
	}
}

// putOff is a folder that only one side changed: it is not opened if nothing of what that side
// removed elsewhere matters.
type putOff struct {
	// node is that of a folder that not all trees have. One that they all have gets it when it is
	// opened: until then it is a name in a folder.
	node   *node
	dir    string
	folder *folder
	triple *triple
	gone   vanished
	// run has several of them.
	run *oursRun
}

func (p *putOff) path() string {
	if p.node != nil {
		return p.node.path
	}
	return join(p.dir, p.triple.name)
}

// partRuns puts off the folders of runs one by one.
func (m *threeWay) partRuns(ctx context.Context, r *sideRenames) error {
	waiting := r.putOff
	r.putOff = nil
	for i := range waiting {
		p := &waiting[i]
		if p.run == nil {
			r.putOff = append(r.putOff, *p)
		} else if err := m.meetNames(ctx, p.dir, p.folder, p.run, p.gone); err != nil {
			return err
		}
	}
	return nil
}

// openPutOff opens the folders that were put off if files may have been renamed into them, and
// otherwise takes them as they are.
func (m *threeWay) openPutOff(ctx context.Context) error {
	for side := ours; side <= theirs; side++ {
		r := &m.renames[side]
		if len(r.relevant) > 0 {
			if err := m.partRuns(ctx, r); err != nil {
				return err
			}
			r.mustOpen = true
		}
		waiting := r.putOff
		r.putOff = nil
		if !r.mustOpen {
			for i := range waiting {
				p := &waiting[i]
				if n := p.node; n != nil {
					n.match, n.settled = 0, true
					n.result, n.absent = n.stages[side], n.stages[side].Mode == 0
				} else if p.run == nil {
					m.hold(p.dir, p.folder, p.triple, side)
				}
			}
			continue
		}
		for _, p := range inHashOrder(waiting, func(p putOff) string { return p.path() }) {
			n := p.node
			if n == nil {
				n = m.newNode(p.dir, p.triple)
				if err := m.reserve(ctx, nodeBytes+int64(len(n.path))); err != nil {
					return err
				}
			}
			n.match &= n.files
			if err := m.open(ctx, n.path, n.folderTrees(), p.gone); err != nil {
				return err
			}
		}
	}
	return nil
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
