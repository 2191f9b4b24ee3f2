package merge

// renames are the possible renames of each side; the element of the base is not used.
type renames [3]sideRenames

// sideRenames is the set of files that one side removed and added, with the renames found so far.
type sideRenames struct {
	// pairs are the removals and additions in the order in which they were met, and later the renames.
	pairs []*pair
	// relevant are the removed paths whose new place can matter to the result, as the other side
	// changed or removed the file, or put others beside it. It is a matter of results too that no
	// other is searched for.
	relevant map[string]relevance
	// removed are the folders that the side has no more.
	removed map[string]demand
	// destinations count, for a removed folder, the files that moved to each other folder.
	destinations map[string]*tally
	// folders are the folders that were renamed as a whole, and where to.
	folders map[string]string

	mustOpen bool
	putOff   []putOff
}

func newSide() sideRenames {
	return sideRenames{
		relevant: make(map[string]relevance), removed: make(map[string]demand),
		destinations: make(map[string]*tally), folders: make(map[string]string),
	}
}

// relevance says why it matters where a removed file went.
type relevance int8

const (
	settled     relevance = iota // it does not any more
	forContent                   // the other side changed it
	forLocation                  // the other side added files to its folder
)

// demand says whose files need the new place of a removed folder.
type demand int8

const (
	forNobody   demand = iota
	forAncestor        // a folder above was removed as well, and its new place is needed
	forItself          // the other side added files to it
)

// file is one side of a pair. An absent file has the mode 0.
type file struct {
	path string
	Version
	moved bool // its new place was found
}

// pair is a removal, an addition, or a rename.
type pair struct {
	old, new *file
	renamed  bool
	side     int
}

func (p *pair) added() bool   { return p.old.Mode == 0 }
func (p *pair) removed() bool { return p.new.Mode == 0 }

// noteCandidates records the names that may be part of renames, and returns which side's absence
// holds below it.
func (m *threeWay) noteCandidates(n *node, dir string, t *triple, gone vanished) vanished {
	half := n.folders == baseBit|oursBit || n.folders == baseBit|theirsBit
	if half && gone != allBits {
		gone = n.folders &^ baseBit
	}
	if half || n.folders == baseBit {
		why := forNobody
		if gone == allBits {
			why = forAncestor
		}
		for side := ours; side <= theirs; side++ {
			if n.folders&(1<<side) == 0 {
				m.renames[side].removed[n.path] = why
			}
		}
	}
	if gone == allBits && (n.files == oursBit || n.files == theirsBit) {
		other := ours + theirs - int(n.files>>1)
		m.renames[other].removed[dir] = forItself
	}
	if n.files == 0 || n.files == allBits {
		return gone
	}
	for side := ours; side <= theirs; side++ {
		was, is := n.files&baseBit != 0, n.files&(1<<side) != 0
		switch {
		case was && !is:
			m.noteRemoval(side, n, t, gone)
		case is && !was:
			m.renames[side].pairs = append(m.renames[side].pairs,
				&pair{old: &file{path: n.path}, new: &file{path: n.path, Version: t.versions[side]}})
		}
	}
	return gone
}

func (m *threeWay) noteRemoval(side int, n *node, t *triple, gone vanished) {
	r := &m.renames[side]
	switch {
	case n.match&n.files == 0:
		r.relevant[n.path] = forContent
	case gone == allBits:
		r.relevant[n.path] = forLocation
	}
	r.pairs = append(r.pairs, &pair{old: &file{path: n.path, Version: t.versions[base]}, new: &file{path: n.path}})
}
