package diff

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"packhorse/pack/object"
)

// Rename pairs a deleted file with an added one, both by their index in what [Renames] was given.
type Rename struct {
	Old, New int
	Score    int
}

const (
	// scoreMin is the similarity from which a pair is a rename: git's -M50%.
	scoreMin = ScoreMax / 2
	// scoreMinBasename is the one for two files that share a unique name, which are not compared
	// with any other.
	scoreMinBasename = scoreMin + (ScoreMax-scoreMin)/2
	// matrixSide bounds the comparisons of the last pass, as the side of a square: git's
	// diff.renameLimit.
	matrixSide = 1000
)

// Renames pairs deleted files with added ones as git diff -M does, given both in the order of their
// paths.
//
// First come equal contents; then files of the same name, if each is the only one of that name on
// its side; then all remaining files are compared with each other, unless that takes more than
// 1,000 by 1,000 comparisons. Each file is in one pair at most. The pairs are in the order of the
// added files. Memory is 8 bytes a line for a few megabytes of fingerprints, beside the lists.
func Renames(ctx context.Context, objects Objects, deleted, added []Entry) ([]Rename, error) {
	if len(deleted) == 0 || len(added) == 0 {
		return nil, nil
	}
	r := renaming{
		ctx: ctx, objects: objects, old: deleted, new: added,
		oldUsed: make([]bool, len(deleted)), newUsed: make([]bool, len(added)),
	}
	r.matchEqual()
	if err := r.matchNames(); err != nil {
		return nil, err
	}
	oldLeft, newLeft := left(r.oldUsed), left(r.newUsed)
	if len(oldLeft) > 0 && len(newLeft) > 0 && len(oldLeft) <= matrixSide*matrixSide/len(newLeft) {
		if err := r.matchSimilar(oldLeft, newLeft); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(r.pairs, func(a, b Rename) int { return cmp.Compare(a.New, b.New) })
	return r.pairs, nil
}

// renaming is one call of Renames.
type renaming struct {
	ctx              context.Context // within one call
	objects          Objects
	old, new         []Entry
	oldUsed, newUsed []bool
	pairs            []Rename
}

func (r *renaming) pair(from, to, score int) {
	r.oldUsed[from], r.newUsed[to] = true, true
	r.pairs = append(r.pairs, Rename{Old: from, New: to, Score: score})
}

// left returns the unused indexes.
func left(used []bool) []int {
	var list []int
	for i, u := range used {
		if !u {
			list = append(list, i)
		}
	}
	return list
}

// equalTriesMax bounds the files of the same content among which git searches the one of the same
// name.
const equalTriesMax = 100

// matchEqual pairs files of the same content: with the first one, or rather with one of the same
// name.
func (r *renaming) matchEqual() {
	byID := make(map[object.ID][]int, len(r.old))
	for i := range r.old {
		byID[r.old[i].ID] = append(byID[r.old[i].ID], i)
	}
	for i := range r.new {
		target := &r.new[i]
		sources := byID[target.ID]
		best, tries := -1, 0
		for at, old := range sources {
			source := &r.old[old]
			if source.Mode != target.Mode && (!source.Mode.IsRegular() || !target.Mode.IsRegular()) {
				continue
			}
			sameName := basename(source.Path) == basename(target.Path)
			if best < 0 || sameName {
				best = at
			}
			if tries++; sameName || tries == equalTriesMax {
				break
			}
		}
		if best >= 0 {
			r.pair(sources[best], i, ScoreMax)
			copy(sources[1:best+1], sources[:best]) // the others stay in order, at the cost of the tries
			byID[target.ID] = sources[1:]
		}
	}
}

// matchNames compares files whose name is the only one of its kind on either side.
func (r *renaming) matchNames() error {
	const several = -1
	oldNames, newNames := map[string]int{}, map[string]int{}
	note := func(names map[string]int, path string, i int) {
		name := basename(path)
		if _, taken := names[name]; taken {
			i = several
		}
		names[name] = i
	}
	for i := range r.old {
		if !r.oldUsed[i] {
			note(oldNames, r.old[i].Path, i)
		}
	}
	for i := range r.new {
		if !r.newUsed[i] {
			note(newNames, r.new[i].Path, i)
		}
	}
	for i := range r.old {
		name := basename(r.old[i].Path)
		j, ok := newNames[name]
		if r.oldUsed[i] || oldNames[name] == several || !ok || j == several {
			continue
		}
		score, err := r.similarity(i, j, scoreMinBasename)
		if err != nil {
			return err
		}
		if score >= scoreMinBasename {
			r.pair(i, j, score)
		}
	}
	return nil
}

// similarity is the score of two files, or 0 if it must be below atLeast.
func (r *renaming) similarity(from, to, atLeast int) (int, error) {
	a, b := &r.old[from], &r.new[to]
	if !a.Mode.IsRegular() || !b.Mode.IsRegular() {
		return 0, nil
	}
	aInfo, err := r.objects.Stat(r.ctx, a.ID)
	if err != nil {
		return 0, err
	}
	bInfo, err := r.objects.Stat(r.ctx, b.ID)
	if err != nil {
		return 0, err
	}
	if !MayScore(aInfo.Size, bInfo.Size, atLeast) {
		return 0, nil
	}
	one, err := ReadFingerprint(r.ctx, r.objects, a.ID)
	if err != nil {
		return 0, err
	}
	two, err := ReadFingerprint(r.ctx, r.objects, b.ID)
	if err != nil {
		return 0, err
	}
	return Score(one, two), nil
}

// basename is the part of a path behind the last folder.
func basename(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
