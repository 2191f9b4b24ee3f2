package engine

import (
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
	"packhorse/refs"
)

// MergeStrategy says how a merge may change its target branch.
type MergeStrategy string

// The strategies of the specification.
const (
	// AlwaysMerge makes a merge commit even where the target could be moved forward.
	AlwaysMerge MergeStrategy = "merge"
	// OnlyForward moves the target forward, or fails.
	OnlyForward MergeStrategy = "ff_only"
	// PreferForward moves the target forward where that is possible, and makes a merge commit
	// elsewhere.
	PreferForward MergeStrategy = "ff_prefer"
)

// MergeBranch is the branch that a merge changes.
type MergeBranch struct {
	Name      string
	Namespace refs.Namespace
}

// MergeRequest describes a merge into a branch.
type MergeRequest struct {
	// Source is what is merged: a branch, or any commit.
	Source   CommitName
	Target   MergeBranch
	Strategy MergeStrategy
	// Squash makes one commit of the source's, whose parent is the target alone.
	Squash bool
	// Expected is the tip that the target must have; nil expects nothing.
	Expected *object.ID
	// Details are needed only where a commit is made.
	Details CommitDetails
	// Unrelated allows branches without a common ancestor.
	Unrelated bool
	// Preview is a merge that was shown: the outcome must be the same. Source and Target are its own.
	Preview *PreviewToken
	// Resolutions say what becomes of paths that conflict.
	Resolutions []Resolution
}

// MergeKind is the kind of outcome of a merge.
type MergeKind string

// Outcomes of a merge.
const (
	MergeCommitted MergeKind = "merge_commit"
	MergeForwarded MergeKind = "fast_forward"
	MergeNothing   MergeKind = "no_op" // the target held the source already
	MergeSquashed  MergeKind = "squash"
	// MergeConflicted is not sent to clients: nothing was changed, and Conflicts give the reason.
	MergeConflicted MergeKind = "conflict"
)

// MergeOutcome is the outcome of a merge. An idempotency record stores it.
type MergeOutcome struct {
	Kind MergeKind
	// Commit is the new tip of the target, Tree its tree; both are zero after a conflict.
	Commit, Tree object.ID
	// Source is the tip that was merged, Old that of the target before.
	Source, Old object.ID
	// Base is the merge base, the newest if there are several; zero if there is none.
	Base object.ID
	// Promoted counts the commits of the source that the target did not have.
	Promoted  int
	Conflicts []merge.Conflict `json:",omitempty"`
	Sequence  uint64
}

// check validates the fields that can be judged without the repository.
func (m *MergeRequest) check() error {
	if m.Source.Kind == BranchName {
		if _, err := m.Source.Namespace.Branch(m.Source.Text); err != nil {
			return fail(ErrInvalidRefName, "source_branch: %v", err)
		}
	}
	if _, err := m.Target.Namespace.Branch(m.Target.Name); err != nil {
		return fail(ErrInvalidRefName, "target_branch: %v", err)
	}
	if m.Source.Text == m.Target.Name && m.Source.Namespace == m.Target.Namespace {
		return invalid("source_branch and target_branch are the same branch")
	}
	if err := checkResolutions(m.Resolutions, 1); err != nil {
		return err
	}
	switch m.Strategy {
	case AlwaysMerge, PreferForward:
	case OnlyForward:
		if m.Squash {
			return invalid("squash: not with the strategy ff_only")
		}
	default:
		return invalid("strategy: expected merge, ff_only or ff_prefer, got %.60q", string(m.Strategy))
	}
	return nil
}

// Merge merges a commit into a branch and returns when that is durable. The source commit is
// resolved once. When the target moves during the merge and the request has no expectation, the
// merge is repeated onto the new tip. A conflict is an outcome, not an error.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a name that does not exist; [ErrStale]; [ErrNoConflict],
// merge.ErrInTheWay; [ErrNotForward], merge.ErrUnrelated; merge.ErrTooLarge; [ErrUnreadable];
// refs.ErrDenied, refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) Merge(ctx context.Context, actor Actor, request MergeRequest) (MergeOutcome, error) {
	if err := request.Preview.checkRepo(r); err != nil {
		return MergeOutcome{}, err
	}
	if err := request.check(); err != nil {
		return MergeOutcome{}, err
	}
	var plan mergePlan
	var source object.ID
	done, err := r.moveBranch(ctx, &actor, &branchChange{
		cause: "merge", target: request.Target, likely: r.likely(request.Source),
		plan: func(ctx context.Context, names lookuper, objects *odb.Quarantine) (branchMove, error) {
			var err error
			plan, err = r.planMerge(ctx, names, objects, &request, source)
			source = plan.outcome.Source
			return plan.move(), err
		},
		verify: func(ctx context.Context, names lookuper, view *odb.View) error {
			if request.Preview == nil {
				return nil // a source that moves meanwhile is merged as it was
			}
			found, err := r.resolve(ctx, names, view.Asking(), request.Source)
			if err != nil {
				return err
			}
			return request.Preview.checkTips(found.Commit, plan.outcome.Old)
		},
		outcome: func(sequence uint64) any {
			plan.outcome.Sequence = sequence
			return plan.outcome
		},
	})
	switch {
	case err != nil:
		return MergeOutcome{}, unreadable(err)
	case done.Replayed:
		return decodeReceipt[MergeOutcome](done.Receipt)
	}
	plan.outcome.Sequence = done.Sequence
	return plan.outcome, nil
}

// mergePlan is a merge that is ready to be committed.
type mergePlan struct {
	outcome   MergeOutcome
	relations *revwalk.Relations
	bases     []object.ID   // the merge bases of the tips, newest first
	needs     []object.ID   // stored blobs that resolve conflicts
	result    *merge.Result // nil where no trees were merged
}

// move is what the plan makes of the target.
func (p *mergePlan) move() branchMove {
	o := &p.outcome
	switch o.Kind {
	case MergeNothing, MergeConflicted:
		return branchMove{Old: o.Old, Tip: o.Old}
	default:
		return branchMove{Old: o.Old, Tip: o.Commit, Forward: o.Kind == MergeForwarded, Needs: p.needs}
	}
}

// planMerge decides on the outcome of a merge by the refs in names, and writes the new objects into
// objects. pinned is the source commit if it is known, or zero.
func (r *Repository) planMerge(
	ctx context.Context, names lookuper, objects *odb.Quarantine, request *MergeRequest, pinned object.ID,
) (mergePlan, error) {
	view := objects.View().Linked()
	plan, err := r.relate(ctx, names, view, request, pinned)
	o := &plan.outcome
	if err != nil {
		return plan, err
	}
	if o.Kind == MergeNothing {
		return plan, request.Preview.checkTree(o.Tree)
	}
	if o.Promoted, err = plan.relations.Ahead(ctx, o.Source, o.Old); err != nil {
		return plan, fmt.Errorf("compare branches: %w", err)
	}
	switch {
	case o.Kind == MergeForwarded && (request.Squash || request.Strategy == AlwaysMerge):
	case o.Kind == MergeForwarded:
		o.Commit = o.Source
		if o.Tree, err = treeOf(ctx, view, o.Commit); err != nil {
			return plan, err
		}
		if len(request.Resolutions) > 0 {
			return plan, noConflict(0, request.Resolutions[0].Path)
		}
		return plan, request.Preview.checkTree(o.Tree)
	case request.Strategy == OnlyForward:
		return plan, &failure{kind: ErrNotForward, text: fmt.Sprintf("%q cannot be moved forward to %q", request.Target.Name,
			request.Source.Text)}
	}
	if err := request.Details.check(); err != nil {
		return plan, err
	}
	if err := r.mergeTrees(ctx, view, request, &plan); err != nil {
		return plan, err
	}
	if err := request.Preview.checkTree(plan.result.Tree); err != nil {
		return plan, err
	}
	if plan.needs, err = resolveConflicts(ctx, view, plan.result, request.Resolutions, 0); err != nil {
		return plan, err
	}
	if !plan.result.Clean() {
		o.Kind, o.Conflicts = MergeConflicted, plan.result.Conflicts
		return plan, nil
	}
	o.Conflicts = nil
	if err := plan.result.Write(ctx, objects); err != nil {
		return plan, err
	}
	o.Tree = plan.result.Tree
	header := commit.Header{
		Parents: []object.ID{o.Old, o.Source},
		Author:  request.Details.Author, Committer: request.Details.Committer, Message: request.Details.Message,
		When: r.host.now(),
	}
	o.Kind = MergeCommitted
	if request.Squash {
		o.Kind = MergeSquashed
		header.Parents = header.Parents[:1]
	}
	o.Commit, err = commit.Build(ctx, objects, o.Tree, header)
	return plan, err
}

// relate finds the two tips in names and how they are related: the kind is [MergeNothing] or
// [MergeForwarded] where one holds the other.
func (r *Repository) relate(
	ctx context.Context, names lookuper, view *odb.View, request *MergeRequest, pinned object.ID,
) (plan mergePlan, err error) {
	o := &plan.outcome
	if o.Source = pinned; pinned.IsZero() {
		found, err := r.resolve(ctx, names, view.Asking(), request.Source)
		if err != nil {
			return plan, err
		}
		o.Source = found.Commit
	}
	if o.Old, err = request.Target.tip(ctx, names, request.Expected); err != nil {
		return plan, err
	}
	if request.Preview != nil {
		if err := request.Preview.checkTips(o.Source, o.Old); err != nil {
			return plan, err
		}
	}
	plan.relations = revwalk.NewRelations(view)
	if plan.bases, err = plan.relations.MergeBases(ctx, o.Old, o.Source); err != nil {
		return plan, fmt.Errorf("find merge bases: %w", err)
	}
	if len(plan.bases) > 0 {
		o.Base = plan.bases[0]
	}
	switch o.Base {
	case o.Source:
		o.Kind, o.Commit = MergeNothing, o.Old
		o.Tree, err = treeOf(ctx, view, o.Old)
	case o.Old:
		o.Kind = MergeForwarded
	}
	return plan, err
}

// tip returns the tip of the branch. Errors: [ErrNotFound], [ErrStale].
func (b *MergeBranch) tip(ctx context.Context, names lookuper, expected *object.ID) (object.ID, error) {
	name := CommitName{Text: b.Name, Namespace: b.Namespace}
	found, err := name.branch(ctx, names, "branch")
	if err == nil && expected != nil && *expected != found.Commit {
		err = &StaleError{Branch: b.Name, Expected: *expected, Actual: found.Commit}
	}
	return found.Commit, err
}

// mergeTrees merges the trees of a plan's tips.
func (r *Repository) mergeTrees(ctx context.Context, view *odb.View, request *MergeRequest, plan *mergePlan) error {
	o := &plan.outcome
	var result *merge.Result
	err := fair.Do(ctx, func(ctx context.Context) (err error) {
		result, err = merge.NewMerger(view, plan.relations).Commits(ctx, o.Old, o.Source, plan.bases, merge.Options{
			Ours: request.Target.Name, Theirs: request.Source.Text, BytesMax: r.host.limits.MergeBytesMax,
			PathBytesMax: r.host.limits.MergePathBytesMax, Unrelated: request.Unrelated,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("merge %s into %s: %w", o.Source, o.Old, err)
	}
	plan.result = result
	if !result.Clean() {
		o.Kind, o.Conflicts = MergeConflicted, result.Conflicts
	}
	return nil
}

// unreadable says of an error of the stored objects that a merge met them: docs/invariants.md 38.
func unreadable(err error) error {
	for _, kind := range []error{odb.ErrCorrupt, odb.ErrNotFound, object.ErrMalformed} {
		if errors.Is(err, kind) {
			return fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	return err
}

// ConflictPaths returns the paths of conflicts, each once, in order.
func ConflictPaths(conflicts []merge.Conflict) []string {
	paths := make([]string, 0, len(conflicts))
	for i := range conflicts {
		paths = append(paths, conflicts[i].Path)
	}
	slices.SortFunc(paths, strings.Compare)
	return slices.Compact(paths)
}
