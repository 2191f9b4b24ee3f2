package merge

import (
	"context"
	"slices"

	"packhorse/pack/object"
)

const (
	// scoreMax is the similarity of equal files, scoreMin that from which a file counts as renamed.
	scoreMax = 60000
	scoreMin = scoreMax / 2
	// nameScoreMin is the similarity that does without a comparison with all others, if only one file
	// of that name left and one came.
	nameScoreMin = scoreMin + (scoreMax-scoreMin)/2
	// equalsMax bounds the equal files that are compared to find the best of them.
	equalsMax = 100
	// candidatesMax bounds the best sources that are kept for a destination.
	candidatesMax = 4
)

// emptyBlob is never renamed.
var emptyBlob, _ = object.Hash(object.TypeBlob, nil)

// search decides which of a side's additions are renames of its removals.
type search struct {
	*sideRenames
	compare *comparer
	limit   int

	sources, targets []*pair
	// guesses are the folders that most files of a folder went to, and unclaimed the additions that
	// are not taken, by path.
	guesses   map[string]string
	unclaimed map[string]int
	counting  bool
}

// findRenames turns the side's pairs into renames, removals and additions. They are found in four
// rounds: equal content, equal names in folders that files went to, names that are unique, and each
// of the rest with each.
func (r *sideRenames) findRenames(ctx context.Context, compare *comparer, limit int) error {
	s := &search{sideRenames: r, compare: compare, limit: limit}
	for _, p := range r.pairs {
		switch {
		case p.added() && p.new.ID != emptyBlob:
			s.targets = append(s.targets, p)
		case p.removed() && p.old.ID != emptyBlob:
			s.sources = append(s.sources, p)
		}
	}
	if len(s.sources) > 0 && len(s.targets) > 0 {
		if err := s.run(ctx); err != nil {
			return err
		}
	}
	r.pairs = slices.DeleteFunc(r.pairs, func(p *pair) bool { return p.removed() && p.old.moved })
	if s.counting {
		s.finishCounts()
	}
	return nil
}

func (s *search) run(ctx context.Context) error {
	s.matchEqual()
	s.dropMoved()
	s.beginCounts()
	if err := s.matchNames(ctx); err != nil {
		return err
	}
	s.dropMoved()
	s.sources = slices.DeleteFunc(s.sources, func(p *pair) bool { _, ok := s.relevant[p.old.path]; return !ok })
	s.dropKnownFolders()
	open := 0
	for _, p := range s.targets {
		if !p.renamed {
			open++
		}
	}
	if open == 0 || len(s.sources) == 0 || open*len(s.sources) > s.limit*s.limit {
		return nil
	}
	return s.matchSimilar(ctx, open)
}

func (s *search) dropMoved() {
	s.sources = slices.DeleteFunc(s.sources, func(p *pair) bool { return p.old.moved })
}

// take makes an addition the rename of a removal.
func (s *search) take(target, source *pair) {
	target.old, target.renamed = source.old, true
	source.old.moved = true
}

// matchEqual finds files whose content is the same; among equal ones, one whose name stayed.
func (s *search) matchEqual() {
	equals := make(map[object.ID][]*pair, len(s.sources))
	for _, p := range s.sources {
		equals[p.old.ID] = append(equals[p.old.ID], p)
	}
	for _, target := range s.targets {
		var best *pair
		bestScore, left := 0, equalsMax
		for _, source := range equals[target.new.ID] {
			if source.old.moved || !regular(source.old, target.new) && source.old.Mode != target.new.Mode {
				continue
			}
			if score := 1 + nameScore(source.old.path, target.new.path); score > bestScore {
				best, bestScore = source, score
			}
			if left--; left == 0 || bestScore == 2 {
				break
			}
		}
		if best != nil {
			s.take(target, best)
		}
	}
}

func regular(a, b *file) bool { return a.Mode.IsRegular() && b.Mode.IsRegular() }

// nameScore is 1 for paths that end in the same name.
func nameScore(a, b string) int {
	_, nameA := split(a)
	_, nameB := split(b)
	if nameA == nameB {
		return 1
	}
	return 0
}

// matchNames compares files with those of the same name that appeared elsewhere, if there is one or
// if there is a guess where.
func (s *search) matchNames(ctx context.Context) error {
	const several = -1
	sources, targets := make(map[string]int), make(map[string]int)
	count := func(of map[string]int, path string, i int) {
		_, name := split(path)
		if _, ok := of[name]; ok {
			i = several
		}
		of[name] = i
	}
	for i, p := range s.sources {
		count(sources, p.old.path, i)
	}
	for i, p := range s.targets {
		if !p.renamed {
			count(targets, p.new.path, i)
		}
	}
	for _, source := range s.sources {
		if _, ok := s.relevant[source.old.path]; !ok {
			continue
		}
		dir, name := split(source.old.path)
		i, ok := targets[name]
		if !ok {
			continue
		}
		if sources[name] == several || i == several {
			if i, ok = s.guess(dir, name); !ok {
				continue
			}
		}
		target := s.targets[i]
		if target.renamed {
			continue
		}
		score, err := s.compare.score(ctx, source.old, target.new, nameScoreMin)
		if err != nil {
			return err
		}
		if score >= nameScoreMin {
			s.take(target, source)
			s.count(source.old.path, target.new.path)
		}
	}
	return nil
}

// guess returns the addition that a file would be if it went where most of its folder went.
func (s *search) guess(dir, name string) (int, bool) {
	to, ok := s.guesses[dir]
	if !ok {
		return 0, false
	}
	i, ok := s.unclaimed[to+"/"+name] // never found for the root, as in git
	return i, ok
}

// candidate is how well a source fits a target; one without a target is a free place.
type candidate struct {
	target, source   *pair
	score, nameScore int
}

// compareCandidates orders the best first, free places last.
func compareCandidates(a, b *candidate) int {
	switch {
	case a.target == nil && b.target == nil:
		return 0
	case a.target == nil:
		return 1
	case b.target == nil:
		return -1
	case a.score == b.score:
		return b.nameScore - a.nameScore
	default:
		return b.score - a.score
	}
}

// matchSimilar compares each source that is left with each target and takes the best fits first.
func (s *search) matchSimilar(ctx context.Context, open int) error {
	all := make([]candidate, 0, open*candidatesMax)
	for _, target := range s.targets {
		if target.renamed {
			continue
		}
		var best [candidatesMax]candidate
		for _, source := range s.sources {
			score, err := s.compare.score(ctx, source.old, target.new, scoreMin)
			if err != nil {
				return err
			}
			c := candidate{target, source, score, nameScore(source.old.path, target.new.path)}
			worst := 0
			for i := 1; i < candidatesMax; i++ {
				if compareCandidates(&best[i], &best[worst]) > 0 {
					worst = i
				}
			}
			if compareCandidates(&best[worst], &c) > 0 {
				best[worst] = c
			}
		}
		all = append(all, best[:]...)
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return compareCandidates(&a, &b) })
	for i := range all {
		c := &all[i]
		if c.target == nil || c.score < scoreMin {
			break
		}
		if c.target.renamed || c.source.old.moved {
			continue
		}
		s.take(c.target, c.source)
		s.count(c.source.old.path, c.target.new.path)
	}
	return nil
}
