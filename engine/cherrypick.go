package engine

import (
	"context"
	"fmt"

	"packhorse/engine/commit"
	"packhorse/engine/merge"
	"packhorse/engine/pick"
	"packhorse/odb"
	"packhorse/odb/fair"
	"packhorse/pack/object"
)

// PickRequest describes commits that a branch gets once more, or that are taken back on it.
type PickRequest struct {
	// Revert takes the commits back.
	Revert bool
	// Commits are done in order, each on top of the one before.
	Commits []CommitName
	Target  MergeBranch
	// Expected is the tip that the target must have; nil expects nothing.
	Expected *object.ID
	// Mainline is the parent, from 1 on, with which merges are compared; 0 refuses merges.
	Mainline int
	// Origin names the repeated commit in the message.
	Origin bool
	// Empty says what becomes of a commit that changes nothing; "" means [EmptyStops].
	Empty EmptyPick
	// Author is that of reverts: a repeated commit keeps its own, and its date.
	Author    commit.Person
	Committer commit.Person // the author when empty
	// Resolutions say what becomes of paths that conflict.
	Resolutions []Resolution
}

// EmptyPick says what becomes of a commit that changes nothing, in git's words.
type EmptyPick string

// What may become of it.
const (
	EmptyStops EmptyPick = "stop" // nothing is done at all
	EmptyDrops EmptyPick = "drop" // it is left out, if it changed something where it was made
	EmptyKeeps EmptyPick = "keep" // it becomes an empty commit
)

// PickCountMax bounds the commits of a request.
const PickCountMax = 1000

// PickKind is the kind of outcome of picks.
type PickKind string

// Outcomes of picks.
const (
	PickCommitted PickKind = "committed"
	PickNothing   PickKind = "no_op" // all commits were left out
	// PickConflicted and PickEmpty are not sent to clients: nothing was changed because of the commit
	// at Failed.
	PickConflicted PickKind = "conflict"
	PickEmpty      PickKind = "empty"
)

// PickOutcome is the outcome of picks. An idempotency record stores it.
type PickOutcome struct {
	Kind PickKind
	// Commit is the new tip of the target, Tree its tree, Old its tip before.
	Commit, Tree, Old object.ID
	// Done has an element for each commit of the request, up to the one that failed.
	Done []Picked
	// Failed is the index of the commit that could not be picked.
	Failed    int
	Conflicts []merge.Conflict `json:",omitempty"`
	Sequence  uint64

	needs []object.ID // stored blobs that resolve conflicts
}

// Picked is a commit, and the one that was made of it, which is zero if it was left out, was there
// before, or failed.
type Picked struct{ Source, Commit object.ID }

// cause is what the journal calls the change.
func (p *PickRequest) cause() string {
	if p.Revert {
		return "revert"
	}
	return "cherry-pick"
}

// check validates the fields that can be judged without the repository.
func (p *PickRequest) check() error {
	switch {
	case len(p.Commits) == 0:
		return invalid("commits must not be empty")
	case len(p.Commits) > PickCountMax:
		return &LimitError{Limit: "commits", Max: PickCountMax}
	case p.Mainline < 0:
		return invalid("mainline: expected the number of a parent, from 1 on, got %d", p.Mainline)
	}
	switch p.Empty {
	case "", EmptyStops, EmptyDrops, EmptyKeeps:
	default:
		return invalid("empty: expected stop, drop or keep, got %.60q", string(p.Empty))
	}
	if _, err := p.Target.Namespace.Branch(p.Target.Name); err != nil {
		return fail(ErrInvalidRefName, "target_branch: %v", err)
	}
	if err := checkResolutions(p.Resolutions, len(p.Commits)); err != nil {
		return err
	}
	if p.Committer == (commit.Person{}) {
		p.Committer = p.Author
	}
	if reason := p.Author.Check(); p.Revert && reason != "" {
		return invalid("author: %s", reason)
	}
	if reason := p.Committer.Check(); reason != "" {
		return invalid("committer: %s", reason)
	}
	return nil
}

// Pick repeats commits on a branch, or takes them back, and returns when that is durable. The
// commits are resolved once. When the branch moves meanwhile and the request has no expectation, it
// is done again on the new tip. A conflict and an empty commit are outcomes, not errors, and
// nothing is changed then.
//
// Errors: [ErrInvalid], also for a merge without mainline; [ErrNotFound] for a name that does not
// exist; [ErrStale]; [ErrNoConflict], merge.ErrInTheWay; [ErrTooLarge], merge.ErrTooLarge;
// [ErrUnreadable]; refs.ErrDenied, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) Pick(ctx context.Context, actor Actor, request PickRequest) (PickOutcome, error) {
	if err := request.check(); err != nil {
		return PickOutcome{}, err
	}
	var outcome PickOutcome
	var sources []object.ID
	done, err := r.moveBranch(ctx, &actor, &branchChange{
		cause: request.cause(), target: request.Target, likely: r.likely(request.Commits...),
		plan: func(ctx context.Context, names lookuper, objects *odb.Quarantine) (_ branchMove, err error) {
			if sources == nil {
				if sources, err = r.resolveAll(ctx, names, objects.View(), request.Commits); err != nil {
					return branchMove{}, err
				}
			}
			outcome, err = r.planPicks(ctx, names, objects, &request, sources)
			return outcome.move(), err
		},
		outcome: func(sequence uint64) any {
			outcome.Sequence = sequence
			return outcome
		},
	})
	switch {
	case err != nil:
		return PickOutcome{}, unreadable(err)
	case done.Replayed:
		return decodeReceipt[PickOutcome](done.Receipt)
	}
	outcome.Sequence = done.Sequence
	return outcome, nil
}

// move is what the outcome makes of the target.
func (o *PickOutcome) move() branchMove {
	if o.Kind != PickCommitted {
		return branchMove{Old: o.Old, Tip: o.Old}
	}
	move := branchMove{Old: o.Old, Tip: o.Commit, Needs: o.needs}
	for _, done := range o.Done {
		move.Needs = append(move.Needs, done.Source)
	}
	return move
}

// resolveAll finds the commits that a request names by the refs in names.
func (r *Repository) resolveAll(
	ctx context.Context, names lookuper, view *odb.View, wanted []CommitName,
) ([]object.ID, error) {
	sources := make([]object.ID, len(wanted))
	for i, name := range wanted {
		if err := fair.Pause(ctx); err != nil {
			return nil, err
		}
		found, err := r.resolve(ctx, names, view.Asking(), name)
		if err != nil {
			return nil, err
		}
		sources[i] = found.Commit
	}
	return sources, nil
}

// planPicks picks sources, the commits of a request, on top of the target's tip in names, and
// writes the new objects into objects.
func (r *Repository) planPicks(
	ctx context.Context, names lookuper, objects *odb.Quarantine, request *PickRequest, sources []object.ID,
) (outcome PickOutcome, err error) {
	outcome = PickOutcome{Kind: PickNothing}
	if outcome.Old, err = request.Target.tip(ctx, names, request.Expected); err != nil {
		return outcome, err
	}
	outcome.Commit = outcome.Old
	if outcome.Tree, err = treeOf(ctx, objects.View().Linked(), outcome.Old); err != nil {
		return outcome, err
	}
	p := picking{
		repo: r, request: request, objects: objects, merger: merge.NewMerger(objects.View().Linked(), nil),
		left: r.host.limits.MergeBytesMax,
	}
	seen := make(map[object.ID]bool, len(sources))
	err = fair.Do(ctx, func(ctx context.Context) error {
		for i, source := range sources {
			if seen[source] { // git's list of commits has each once
				outcome.Done = append(outcome.Done, Picked{Source: source})
				continue
			}
			seen[source] = true
			if err := p.pick(ctx, &outcome, source, i); err != nil {
				return err
			}
			if outcome.Kind == PickConflicted || outcome.Kind == PickEmpty {
				outcome.Failed = i
				return nil
			}
		}
		return nil
	})
	return outcome, err
}

// picking makes the commits of one request.
type picking struct {
	repo    *Repository
	request *PickRequest
	objects *odb.Quarantine
	merger  *merge.Merger
	left    int64 // bytes that the commits still to come may make
}

// pick makes the next commit on top of what the outcome holds so far.
func (p *picking) pick(ctx context.Context, outcome *PickOutcome, source object.ID, index int) error {
	view := p.objects.View().Linked()
	_, data, err := view.Read(ctx, source)
	if err != nil {
		return fmt.Errorf("read commit %s: %w", source, err)
	}
	c, err := object.ParseCommit(data)
	if err != nil {
		return fmt.Errorf("read commit %s: %w", source, err)
	}
	parent, err := p.parent(source, c)
	if err != nil {
		return err
	}
	before := object.EmptyTreeID
	if !parent.IsZero() {
		if before, err = treeOf(ctx, view, parent); err != nil {
			return err
		}
	}
	outcome.Done = append(outcome.Done, Picked{Source: source})
	label := pick.Label(source, c.Message)
	base, theirs, options := before, c.Tree, merge.Options{
		Ours: "HEAD", Theirs: label, BytesMax: max(p.left, 1), PathBytesMax: p.repo.host.limits.MergePathBytesMax,
	}
	if p.request.Revert {
		base, theirs, options.Theirs = c.Tree, before, "parent of "+label
		if parent.IsZero() {
			options.Theirs = "(empty tree)"
		}
	}
	result, err := p.merger.Trees(ctx, base, outcome.Tree, theirs, options)
	if err != nil {
		return fmt.Errorf("pick %s: %w", source, err)
	}
	needs, err := resolveConflicts(ctx, view, result, p.request.Resolutions, index)
	if err != nil {
		return err
	}
	outcome.needs = append(outcome.needs, needs...)
	if !result.Clean() {
		outcome.Kind, outcome.Conflicts = PickConflicted, result.Conflicts
		return nil
	}
	if result.Tree == outcome.Tree {
		switch ever, err := p.changes(ctx, view, c); {
		case err != nil:
			return err
		case p.request.Empty == EmptyKeeps:
		case p.request.Empty == EmptyDrops && ever:
			return nil
		default:
			outcome.Kind = PickEmpty
			return nil
		}
	}
	if err := result.Write(ctx, p.objects); err != nil {
		return err
	}
	p.left -= result.Size()
	made := p.commit(c, source, parent)
	made.Tree, made.Parents = result.Tree, []object.ID{outcome.Commit}
	id, err := p.objects.Write(ctx, object.TypeCommit, made.Append(nil), object.ZeroID)
	if err != nil {
		return fmt.Errorf("write commit: %w", err)
	}
	outcome.Kind, outcome.Commit, outcome.Tree = PickCommitted, id, result.Tree
	outcome.Done[len(outcome.Done)-1].Commit = id
	return nil
}

// parent returns the parent with which a commit is compared, zero for a root.
func (p *picking) parent(id object.ID, c *object.Commit) (object.ID, error) {
	mainline := p.request.Mainline
	switch count := len(c.Parents); {
	case count == 0:
		return object.ZeroID, nil
	case count > 1 && mainline == 0:
		return object.ZeroID, invalid("%s is a merge: mainline has to say with which of its %d parents it is compared", id,
			count)
	case count > 1 && mainline > count:
		return object.ZeroID, invalid("mainline: %s has %d parents, not %d", id, count, mainline)
	case count > 1:
		return c.Parents[mainline-1], nil
	case mainline > 1:
		return object.ZeroID, invalid("mainline: %s is no merge and has no parent %d", id, mainline)
	default:
		return c.Parents[0], nil
	}
}

// changes reports whether a commit changed something where it was made.
func (p *picking) changes(ctx context.Context, view *odb.View, c *object.Commit) (bool, error) {
	before := object.EmptyTreeID
	if len(c.Parents) > 0 {
		var err error
		if before, err = treeOf(ctx, view, c.Parents[0]); err != nil {
			return false, err
		}
	}
	return c.Tree != before, nil
}

// commit returns the commit that is made of c, without tree and parents.
func (p *picking) commit(c *object.Commit, id, parent object.ID) *object.Commit {
	now := p.repo.host.now()
	made := &object.Commit{Committer: p.request.Committer.At(now)}
	if p.request.Revert {
		made.Author, made.Encoding = p.request.Author.At(now), c.Encoding
		if len(c.Parents) < 2 {
			parent = object.ZeroID
		}
		made.Message = pick.RevertMessage(id, c.Message, parent)
		return made
	}
	made.Author, made.Encoding, made.Message = c.Author, c.Encoding, pick.Message(c.Message)
	if made.Author.Zone == "" { // of an old tool that wrote no date
		made.Author.Zone = "+0000"
	}
	if p.request.Origin {
		made.Message = pick.WithOrigin(c.Message, id)
	}
	return made
}
