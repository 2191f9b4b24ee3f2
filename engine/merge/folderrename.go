package merge

import (
	"slices"
)

// tally counts the files of one removed folder by the folder that they went to.
type tally struct {
	order []string // in which folders were met
	count map[string]int
}

// notFound is the destination of files that have not been found yet.
const notFound = "/"

func (t *tally) add(to string) {
	if _, ok := t.count[to]; !ok {
		t.order = append(t.order, to)
	}
	t.count[to]++
}

// favourite returns the folder that the most files went to, in git's order the first of several.
func (t *tally) favourite() (to string, ok bool) {
	most := 0
	for _, dir := range inHashOrder(t.order, func(dir string) string { return dir }) {
		if n := t.count[dir]; n > most {
			to, most = dir, n
		}
	}
	return to, most > 0
}

// winner returns the folder that more files went to than to any other. There may be several that
// the most went to; none then.
func (t *tally) winner() (to string, ok, tied bool) {
	most := 0
	for _, dir := range t.order {
		switch n := t.count[dir]; {
		case n > most:
			to, most, tied = dir, n, false
		case n == most:
			tied = true
		}
	}
	return to, most > 0 && !tied, most > 0 && tied
}

// certain reports whether the winner is known whatever the destinations of the files not found yet.
func (t *tally) certain() bool {
	first, second := 0, 0
	for dir, n := range t.count {
		switch {
		case dir == notFound:
		case n >= first:
			first, second = n, first
		case n >= second:
			second = n
		}
	}
	return first > second+t.count[notFound]
}

// add counts a file of folder from that went to folder to.
func (r *sideRenames) add(from, to string) {
	t := r.destinations[from]
	if t == nil {
		t = &tally{count: make(map[string]int)}
		r.destinations[from] = t
	}
	t.add(to)
}

// count counts a rename for the folder of the file, and for those above as far as the two paths end
// alike: a/b/f that became c/b/f says that a became c.
func (s *search) count(oldPath, newPath string) {
	if !s.counting {
		return
	}
	oldDir, oldName := split(oldPath)
	newDir, newName := split(newPath)
	for first := true; ; first = false {
		if _, ok := s.removed[oldDir]; !ok || !first && oldName != newName {
			return
		}
		why := s.removed[oldDir]
		if why == forItself || first {
			s.add(oldDir, newDir)
		}
		if why == forNobody || oldDir == "" || newDir == "" {
			return
		}
		oldDir, oldName = split(oldDir)
		newDir, newName = split(newDir)
	}
}

// beginCounts counts the renames that were found, and guesses by them where other files went.
func (s *search) beginCounts() {
	s.counting = true
	s.unclaimed = make(map[string]int)
	for i, p := range s.targets {
		if !p.renamed {
			s.unclaimed[p.new.path] = i
			continue
		}
		s.count(p.old.path, p.new.path)
	}
	s.guesses = make(map[string]string, len(s.destinations))
	for dir, t := range s.destinations {
		if to, ok := t.favourite(); ok {
			s.guesses[dir] = to
		}
	}
}

// dropKnownFolders drops sources of which only the folder matters, if the new place of the folder
// is certain already.
func (s *search) dropKnownFolders() {
	for _, p := range s.sources {
		for dir := above(p.old.path); dir != "" && s.removed[dir] != forNobody; dir = above(dir) {
			s.add(dir, notFound)
		}
	}
	for dir, t := range s.destinations {
		if s.removed[dir] == forItself && t.certain() {
			s.removed[dir] = forAncestor
		}
	}
	s.sources = slices.DeleteFunc(s.sources, func(p *pair) bool {
		if s.relevant[p.old.path] != forLocation {
			return false
		}
		for dir := above(p.old.path); ; dir = above(dir) {
			switch s.removed[dir] {
			case forItself:
				return false
			case forAncestor:
			case forNobody:
				s.relevant[p.old.path] = settled
				return true
			}
		}
	})
}

// finishCounts keeps what folder renames are decided by.
func (s *search) finishCounts() {
	for dir, t := range s.destinations {
		if s.removed[dir] == forNobody {
			delete(s.destinations, dir)
			continue
		}
		delete(t.count, notFound)
		t.order = slices.DeleteFunc(t.order, func(dir string) bool { return dir == notFound })
	}
}

// settleFolders decides which folders were renamed as a whole. One whose files went to several,
// none of which got the most, is a conflict; one that both sides renamed was renamed by neither.
func (m *threeWay) settleFolders() {
	for side := ours; side <= theirs; side++ {
		r := &m.renames[side]
		for dir, t := range r.destinations {
			to, ok, tied := t.winner()
			switch {
			case tied:
				m.unplaced = append(m.unplaced, Conflict{Path: dir, Kind: DirectorySplit})
			case ok:
				r.folders[dir] = to
			}
		}
	}
	for dir := range m.renames[ours].folders {
		if _, ok := m.renames[theirs].folders[dir]; ok {
			delete(m.renames[ours].folders, dir)
			delete(m.renames[theirs].folders, dir)
		}
	}
}
