package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"packhorse/engine/commit"
	"packhorse/engine/merge"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/odb/revwalk"
	"packhorse/pack/object"
)

// LandRequest describes commits that are merged into a branch one after the other.
type LandRequest struct {
	Target  MergeBranch
	Sources []LandSource
	// Expected is the tip that the target must have; nil expects nothing.
	Expected *object.ID
	// StopOnConflict leaves what follows a source that conflicts.
	StopOnConflict bool
	Author         commit.Person
	Committer      commit.Person // the author when empty
}

// LandSource is a commit to merge.
type LandSource struct {
	Source CommitName
	// Message is that of the merge; "" says what is merged into what.
	Message string
	// Squash makes one commit of the source's, whose parent is the target alone.
	Squash bool
}

// LandCountMax bounds the sources of a request.
const LandCountMax = 1000

// LandKind is what became of a source.
type LandKind string

// What may become of a source.
const (
	LandMerged     LandKind = "merge_commit"
	LandSquashed   LandKind = "squash"
	LandNothing    LandKind = "no_op" // the target held it already
	LandConflicted LandKind = "conflict"
	LandUnrelated  LandKind = "unrelated" // it has no ancestor in common with the target
	LandSkipped    LandKind = "skipped"   // it follows one that conflicts
)

// LandOutcome is the outcome of a landing. An idempotency record stores it.
type LandOutcome struct {
	// Commit is the new tip of the target, Tree its tree, Old its tip before.
	Commit, Tree, Old object.ID
	Sources           []Landed // in the order of the request
	Sequence          uint64
}

// Landed is what became of a source.
type Landed struct {
	Kind LandKind
	// Source is the commit that was merged; Commit the merge, zero without one.
	Source, Commit object.ID
	Paths          []string `json:",omitempty"` // that conflict, sorted
	Clashes        []Clash  `json:",omitempty"`
}

// Clash names what a source conflicts with: the source at Index, which landed before it, or the
// target as it was at first.
type Clash struct {
	Target bool `json:",omitempty"`
	Index  int
	// Commit is the one that the source at Index came to; or the newest one of the target, along first
	// parents, that changed one of Paths and that the source does not hold, zero if none was found.
	Commit object.ID
	Paths  []string // that began to conflict with it, sorted
}

func (l *LandRequest) check() error {
	if _, err := l.Target.Namespace.Branch(l.Target.Name); err != nil {
		return fail(ErrInvalidRefName, "target_branch: %v", err)
	}
	switch {
	case len(l.Sources) == 0:
		return invalid("sources must not be empty")
	case len(l.Sources) > LandCountMax:
		return &LimitError{Limit: "sources", Max: LandCountMax}
	}
	for i := range l.Sources {
		s := &l.Sources[i]
		if s.Message == "" {
			s.Message = fmt.Sprintf("%s %s into %s", map[bool]string{false: "Merge", true: "Squash"}[s.Squash], s.Source.Text,
				l.Target.Name)
		}
		details := CommitDetails{Message: s.Message, Author: l.Author, Committer: l.Committer}
		if err := details.checkAs(fmt.Sprintf("sources[%d].message", i)); err != nil {
			return err
		}
		l.Committer = details.Committer
	}
	return nil
}

// landAheadMax is how often a landing is computed ahead before it is computed in its turn.
const landAheadMax = 2

// Land merges commits into a branch in order, in one transaction, and returns when that is durable.
// A source that conflicts is left out and told with what it conflicts. The commits are resolved
// once. When the branch moves meanwhile and the request has no expectation, all are merged again.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a name that does not exist; [ErrStale]; [ErrTooLarge],
// merge.ErrTooLarge; [ErrUnreadable]; refs.ErrDenied, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) Land(ctx context.Context, actor Actor, request LandRequest) (LandOutcome, error) {
	if err := request.check(); err != nil {
		return LandOutcome{}, err
	}
	names := make([]CommitName, len(request.Sources))
	for i := range request.Sources {
		names[i] = request.Sources[i].Source
	}
	var outcome LandOutcome
	var sources []object.ID
	done, err := r.moveBranch(ctx, &actor, &branchChange{
		cause: "land", target: request.Target, likely: r.likely(names[:min(len(names), landReadAhead)]...),
		aheadMax: landAheadMax,
		plan: func(ctx context.Context, refs lookuper, objects *odb.Quarantine) (_ branchMove, err error) {
			if sources == nil {
				if sources, err = r.resolveAll(ctx, refs, objects.View(), names); err != nil {
					return branchMove{}, err
				}
			}
			outcome, err = r.planLanding(ctx, refs, objects, &request, sources)
			return branchMove{Old: outcome.Old, Tip: outcome.Commit}, err
		},
		outcome: func(sequence uint64) any {
			outcome.Sequence = sequence
			return outcome
		},
	})
	switch {
	case err != nil:
		return LandOutcome{}, unreadable(err)
	case done.Replayed:
		return decodeReceipt[LandOutcome](done.Receipt)
	}
	outcome.Sequence = done.Sequence
	return outcome, nil
}

// landReadAhead bounds the refs of sources that are read together.
const landReadAhead = 800

// planLanding merges sources, the commits of a request, on top of the target's tip in names, and
// writes the new objects into objects.
func (r *Repository) planLanding(
	ctx context.Context, names lookuper, objects *odb.Quarantine, request *LandRequest, sources []object.ID,
) (outcome LandOutcome, err error) {
	if outcome.Old, err = request.Target.tip(ctx, names, request.Expected); err != nil {
		return outcome, err
	}
	outcome.Commit = outcome.Old
	if outcome.Tree, err = treeOf(ctx, objects.View().Linked(), outcome.Old); err != nil {
		return outcome, err
	}
	view := objects.View().Linked()
	l := &landing{
		repo: r, request: request, objects: objects, left: r.host.limits.MergeBytesMax, outcome: &outcome,
		view: view, relations: revwalk.NewRelations(view), changes: make(map[string][]int), tips: []object.ID{outcome.Old},
	}
	l.merger = merge.NewMerger(view, l.relations)
	if err := objects.Expect(ctx, landObjectsMin*len(sources)); err != nil {
		return outcome, err
	}
	if l.ancestry, err = revwalk.NewAncestry(ctx, l.relations, outcome.Old); err != nil {
		return outcome, err
	}
	l.writer = newLandWriter(ctx, objects)
	defer l.writer.stop()
	l.merger.BeforeForget = l.writer.flush
	err = fair.Do(ctx, func(ctx context.Context) error {
		stopped := false
		for i, source := range sources {
			if stopped {
				outcome.Sources = append(outcome.Sources, Landed{Kind: LandSkipped, Source: source})
				continue
			}
			landed, err := l.land(ctx, i, source)
			if err != nil {
				return fmt.Errorf("land %s: %w", source, err)
			}
			outcome.Sources = append(outcome.Sources, landed)
			stopped = request.StopOnConflict && landed.Kind == LandConflicted
		}
		return l.writer.flush(ctx)
	})
	return outcome, err
}

// landObjectsMin is the number of objects of a merge that changes a folder: two trees and a commit.
const landObjectsMin = 3

// landing merges the sources of one request.
type landing struct {
	repo    *Repository
	request *LandRequest
	objects *odb.Quarantine
	left    int64 // bytes that the merges still to come may make
	outcome *LandOutcome

	// tips are the tips of the target, from that at first on, and by the indexes of the sources that
	// made the second one and those after it.
	tips      []object.ID
	by        []int
	view      *odb.View
	merger    *merge.Merger
	writer    *landWriter
	relations *revwalk.Relations // of all commits
	ancestry  *revwalk.Ancestry  // of the tip

	// changes are the indexes of the tips whose merges changed a path, changeCount of them in all.
	changes     map[string][]int
	changeCount int

	// trunk is the target as it was at first and its first parents, as far as they have been read, and
	// looks counts the questions whether one of them changed a path.
	trunk []revwalk.Commit
	looks int
}

// land merges the next source into what the others came to.
func (l *landing) land(ctx context.Context, index int, source object.ID) (Landed, error) {
	if err := fair.Pause(ctx); err != nil {
		return Landed{}, err
	}
	landed := Landed{Kind: LandMerged, Source: source}
	bases, err := l.ancestry.MergeBases(ctx, source)
	if err != nil {
		return landed, err
	}
	switch {
	case len(bases) == 0:
		landed.Kind = LandUnrelated
		return landed, nil
	case bases[0] == source:
		landed.Kind = LandNothing
		return landed, nil
	}
	result, err := l.merge(ctx, index, l.outcome.Commit, source, bases)
	if err != nil {
		return landed, err
	}
	if !result.Clean() {
		landed.Kind, landed.Paths = LandConflicted, ConflictPaths(result.Conflicts)
		landed.Clashes, err = l.clashes(ctx, index, source, landed.Paths)
		return landed, err
	}
	made, err := result.NewObjects()
	if err != nil {
		return landed, err
	}
	l.left -= result.Size()
	header := commit.Header{
		Parents: []object.ID{l.outcome.Commit, source},
		Author:  l.request.Author, Committer: l.request.Committer, Message: l.request.Sources[index].Message,
		When: l.repo.host.now(),
	}
	if l.request.Sources[index].Squash {
		landed.Kind, header.Parents = LandSquashed, header.Parents[:1]
	}
	data := header.Encode(result.Tree)
	if landed.Commit, err = object.Hash(object.TypeCommit, data); err != nil {
		return landed, fmt.Errorf("hash commit: %w", err)
	}
	row := odb.GraphRow{Tree: result.Tree, Parents: header.Parents, Seconds: header.When.Unix()}
	l.relations.Add(revwalk.Commit{ID: landed.Commit, GraphRow: row})
	made = append(made, merge.NewObject{ID: landed.Commit, Type: object.TypeCommit, Data: data})
	if err := l.writer.add(ctx, landWrite{source: source, objects: made}); err != nil {
		return landed, err
	}
	if err := l.ancestry.Advance(ctx, landed.Commit); err != nil {
		return landed, err
	}
	l.outcome.Commit, l.outcome.Tree = landed.Commit, result.Tree
	l.tips, l.by = append(l.tips, landed.Commit), append(l.by, index)
	if l.changeCount += len(result.Changed); l.changeCount <= landChangesMax {
		for _, path := range result.Changed {
			l.changes[path] = append(l.changes[path], len(l.tips)-1)
		}
	}
	return landed, nil
}

// landChangesMax bounds the changed paths that a landing remembers. Without them it finds the same
// clashes by more merges.
const landChangesMax = 1 << 16

// changedBy returns the indexes of the tips, above low and up to high, whose merges are known to
// have changed one of paths, in order.
func (l *landing) changedBy(paths []string, low, high int) (tips []int) {
	for _, path := range paths {
		for at := path; at != ""; at = at[:max(strings.LastIndexByte(at, '/'), 0)] {
			for _, k := range l.changes[at] {
				if low < k && k <= high {
					tips = append(tips, k)
				}
			}
		}
	}
	slices.Sort(tips)
	return slices.Compact(tips)
}

func (l *landing) merge(
	ctx context.Context, index int, tip, source object.ID, bases []object.ID,
) (*merge.Result, error) {
	return l.merger.Commits(ctx, tip, source, bases, merge.Options{
		Ours: l.request.Target.Name, Theirs: l.request.Sources[index].Source.Text, BytesMax: max(l.left, 1),
		PathBytesMax: l.repo.host.limits.MergePathBytesMax,
	})
}

// clashesMax bounds what is named as clashing with one source.
const clashesMax = 16

// clashes finds with what a source conflicts at paths. The tips of the target so far are searched
// for the first one at which some of the paths conflict: what made it is what they clash with. Then
// the others are searched for.
func (l *landing) clashes(
	ctx context.Context, index int, source object.ID, paths []string,
) (found []Clash, err error) {
	met := make(map[int][]string) // the paths that conflict, by the index of the tip
	conflictsAt := func(k int) ([]string, error) {
		if known, ok := met[k]; ok {
			return known, nil
		}
		if err := fair.Pause(ctx); err != nil {
			return nil, err
		}
		bases, err := l.relations.MergeBases(ctx, l.tips[k], source)
		if err != nil {
			return nil, err
		}
		if len(bases) == 0 { // a source that landed later has joined the histories
			met[k] = nil
			return nil, nil
		}
		result, err := l.merge(ctx, index, l.tips[k], source, bases)
		if err != nil {
			return nil, err
		}
		met[k] = ConflictPaths(result.Conflicts)
		return met[k], nil
	}
	last := len(l.tips) - 1
	met[last] = paths
	for low := 0; len(paths) > 0 && len(found) < clashesMax; {
		high := last
		suspects := l.changedBy(paths, low, high)
		for first := true; low < high; {
			// The paths conflict since a merge that changed them, or always have if there is none.
			middle := (low + high) / 2
			if n := len(suspects); n > 0 {
				middle = suspects[n/2] - 1
			} else if first {
				middle, first = low, false
			}
			there, err := conflictsAt(middle)
			if err != nil {
				return found, err
			}
			if containsAny(there, paths) {
				high = middle
			} else {
				low = middle + 1
			}
			suspects = slices.DeleteFunc(suspects, func(k int) bool { return k <= low || k > high })
		}
		there, err := conflictsAt(high)
		if err != nil {
			return found, err
		}
		clash := Clash{Target: high == 0}
		if high > 0 {
			clash.Index, clash.Commit = l.by[high-1], l.tips[high]
		}
		var left []string
		for _, path := range paths {
			if slices.Contains(there, path) {
				clash.Paths = append(clash.Paths, path)
			} else {
				left = append(left, path)
			}
		}
		if len(clash.Paths) == 0 {
			return found, errors.New("engine: a conflict has no origin") // at the last tip all paths conflict
		}
		if clash.Target {
			if clash.Commit, err = l.partner(ctx, source, clash.Paths); err != nil {
				return found, err
			}
		}
		found = append(found, clash)
		paths, low = left, high
	}
	slices.SortStableFunc(found, func(a, b Clash) int { return cmp.Compare(a.Index, b.Index) })
	return found, nil
}

// Bounds of the search for the commits of the target with which sources conflict.
const (
	partnerPathsMax = 16     // of a clash that are searched for
	partnerLooksMax = 10_000 // of a request: whether a commit changed a path
)

// partner returns the newest commit of the target, as it was at first, along first parents, that
// changed one of paths and that source does not hold; zero if there is none within bounds.
func (l *landing) partner(
	ctx context.Context, source object.ID, paths []string,
) (commit object.ID, err error) {
	bases, err := l.relations.MergeBases(ctx, l.tips[0], source)
	if err != nil {
		return object.ZeroID, err
	}
	var readers []*revwalk.PathReader
	defer func() {
		for _, r := range readers {
			r.Close()
		}
	}()
	for _, path := range paths[:min(len(paths), partnerPathsMax)] {
		r, err := revwalk.NewPathReader(ctx, l.view, path)
		if err != nil {
			return object.ZeroID, err
		}
		readers = append(readers, r)
	}
	for i := 0; ; i++ {
		c, err := l.trunkAt(ctx, i)
		if err != nil || slices.Contains(bases, c.ID) || len(c.Parents) == 0 {
			return object.ZeroID, err
		}
		parent, err := l.trunkAt(ctx, i+1)
		if err != nil {
			return object.ZeroID, err
		}
		for _, r := range readers {
			if err := fair.Pause(ctx); err != nil {
				return object.ZeroID, err
			}
			if l.looks++; l.looks > partnerLooksMax {
				return object.ZeroID, nil
			}
			changed, err := changedAt(ctx, r, c, parent)
			if err != nil {
				return object.ZeroID, err
			}
			if !changed {
				continue
			}
			// Where the merge base is no first parent, the walk may have come to what both hold.
			held, err := l.relations.IsAncestor(ctx, c.ID, source)
			if err != nil || held {
				return object.ZeroID, err
			}
			return c.ID, nil
		}
	}
}

// trunkAt returns the target as it was at first, or the i-th of its first parents. Those before it
// have been asked for.
func (l *landing) trunkAt(ctx context.Context, i int) (revwalk.Commit, error) {
	if i == len(l.trunk) {
		id := l.tips[0]
		if i > 0 {
			id = l.trunk[i-1].Parents[0]
		}
		c, err := l.relations.Commit(ctx, id)
		if err != nil {
			return c, err
		}
		l.trunk = append(l.trunk, c)
	}
	return l.trunk[i], nil
}

// changedAt reports whether a commit has another entry at the path of a reader than its parent.
func changedAt(ctx context.Context, r *revwalk.PathReader, commit, parent revwalk.Commit) (bool, error) {
	if same, change, err := r.Look(ctx, commit.ID, 0); err != nil || same || change != nil {
		return change != nil, err
	}
	mode, id, err := r.Entry(ctx, commit.Tree)
	if err != nil {
		return false, fmt.Errorf("read tree of commit %s: %w", commit.ID, err)
	}
	oldMode, oldID, err := r.Entry(ctx, parent.Tree)
	if err != nil {
		return false, fmt.Errorf("read tree of commit %s: %w", parent.ID, err)
	}
	return mode != oldMode || id != oldID, nil
}

// containsAny reports whether one of two sorted lists has an element of the other.
func containsAny(a, b []string) bool {
	for len(a) > 0 && len(b) > 0 {
		switch c := cmp.Compare(a[0], b[0]); {
		case c == 0:
			return true
		case c < 0:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return false
}
