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
			return invalid("source_branch: %v", err)
		}
	}
	if _, err := m.Target.Namespace.Branch(m.Target.Name); err != nil {
		return invalid("target_branch: %v", err)
	}
	if m.Source.Text == m.Target.Name && m.Source.Namespace == m.Target.Namespace {
		return invalid("source_branch and target_branch are the same branch")
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

// mergeTriesMax bounds how often a merge is repeated because its target has moved:
// docs/invariants.md 43.
const mergeTriesMax = 16

// Merge merges a commit into a branch and returns when that is durable. The source commit is
// resolved once. When the target moves during the merge and the request has no expectation, the
// merge is repeated onto the new tip. A conflict is an outcome, not an error.
//
// Errors: [ErrInvalid]; [ErrNotFound] for a name that does not exist; [ErrStale];
// [ErrNotForward], merge.ErrUnrelated; merge.ErrTooLarge; [ErrUnreadable]; refs.ErrDenied,
// refs.ErrBusy, refs.ErrReceiptMismatch.
func (r *Repository) Merge(ctx context.Context, actor Actor, request MergeRequest) (MergeOutcome, error) {
	if err := request.check(); err != nil {
		return MergeOutcome{}, err
	}
	var source object.ID
	for range mergeTriesMax {
		outcome, pinned, err := r.mergeOnce(ctx, &actor, &request, source)
		if !errors.Is(err, errTargetMoved) {
			return outcome, unreadable(err)
		}
		source = pinned
	}
	return MergeOutcome{}, fmt.Errorf("merge into %s: %w", request.Target.Name, refs.ErrBusy)
}

// errTargetMoved says that the target has moved since a merge was computed.
var errTargetMoved = errors.New("engine: the target of a merge moved")

// mergeOnce merges the source, or the tip that it is pinned to, into the current target, and
// returns that tip. The merge is computed before the repository's turn begins. Refusals are left to
// the transaction, where an idempotency key may replay an earlier success instead.
func (r *Repository) mergeOnce(
	ctx context.Context, actor *Actor, request *MergeRequest, pinned object.ID,
) (_ MergeOutcome, source object.ID, err error) {
	view, err := r.writable(ctx, actor)
	if err != nil {
		return MergeOutcome{}, pinned, err
	}
	defer view.Close()
	defer actor.hold.Release()
	objects := view.NewQuarantine(ctx)
	defer objects.Close() // once the write is durable, this cannot fail it any more
	plan, planErr := r.planMerge(ctx, objects, request, pinned)
	source = plan.outcome.Source
	name := request.Target.Namespace.Full("refs/heads/" + request.Target.Name)
	change := r.change(actor, "merge", name)
	change.FastForward = onTop
	outcome := plan.outcome
	if planErr == nil && outcome.Kind == MergeForwarded {
		planErr = verifyAhead(ctx, &change, refs.Move{Name: name, Before: outcome.Old, After: outcome.Commit})
	}
	done, err := r.transact(ctx, actor, change, objects, func(ctx context.Context, tx *refs.Tx, _ *Repository) error {
		if planErr != nil {
			return planErr
		}
		switch ref, err := tx.Lookup(ctx, name); {
		case errors.Is(err, refs.ErrNotFound), err == nil && ref.ID != outcome.Old:
			return errTargetMoved
		case err != nil:
			return fmt.Errorf("look up branch %s: %w", request.Target.Name, err)
		}
		outcome.Sequence = tx.Sequence()
		if outcome.Kind == MergeNothing || outcome.Kind == MergeConflicted {
			return refs.ErrUnchanged
		}
		if err := objects.Refresh(ctx); err != nil {
			return fmt.Errorf("refresh objects: %w", err)
		}
		if err := requireCommit(ctx, objects.View().Linked(), outcome.Commit); err != nil {
			return err // pruned: no ref led to it
		}
		if err := objects.Stage(ctx, tx.Batch()); err != nil {
			return fmt.Errorf("stage objects: %w", err)
		}
		if err := tx.Set(ctx, name, &outcome.Old, outcome.Commit, object.ZeroID); err != nil {
			return err
		}
		outcome.Sequence++
		return setReceipt(tx, outcome)
	})
	if err != nil {
		return MergeOutcome{}, source, err
	}
	if done.Replayed {
		outcome, err = decodeReceipt[MergeOutcome](done.Receipt)
		return outcome, source, err
	}
	objects.Settled(ctx)
	return outcome, source, nil
}

// mergePlan is a merge that is ready to be committed.
type mergePlan struct {
	outcome MergeOutcome
	bases   []object.ID   // the merge bases of the tips, newest first
	result  *merge.Result // nil where no trees were merged
}

// planMerge decides on the outcome of a merge and writes the new objects into objects.
func (r *Repository) planMerge(
	ctx context.Context, objects *odb.Quarantine, request *MergeRequest, pinned object.ID,
) (mergePlan, error) {
	plan, err := r.relate(ctx, objects.View().Linked(), request, pinned)
	o := &plan.outcome
	if err != nil || o.Kind == MergeNothing {
		return plan, err
	}
	if o.Promoted, err = revwalk.Ahead(ctx, objects.View().Linked(), o.Source, o.Old); err != nil {
		return plan, fmt.Errorf("compare branches: %w", err)
	}
	switch {
	case o.Kind == MergeForwarded && (request.Squash || request.Strategy == AlwaysMerge):
	case o.Kind == MergeForwarded:
		o.Commit = o.Source
		o.Tree, err = treeOf(ctx, objects.View().Linked(), o.Commit)
		return plan, err
	case request.Strategy == OnlyForward:
		return plan, &failure{kind: ErrNotForward, text: fmt.Sprintf("%q cannot be moved forward to %q", request.Target.Name,
			request.Source.Text)}
	}
	if err := request.Details.check(); err != nil {
		return plan, err
	}
	if err := r.mergeTrees(ctx, objects.View().Linked(), request, &plan); err != nil || !plan.result.Clean() {
		return plan, err
	}
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

// relate finds the two tips and how they are related: the kind is [MergeNothing] or
// [MergeForwarded] where one holds the other.
func (r *Repository) relate(
	ctx context.Context, view *odb.View, request *MergeRequest, pinned object.ID,
) (plan mergePlan, err error) {
	o := &plan.outcome
	into := CommitName{Text: request.Target.Name, Namespace: request.Target.Namespace}
	names, err := r.names(ctx, r.likely(request.Source, into)...)
	if err != nil {
		return plan, err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	if o.Source = pinned; pinned.IsZero() {
		found, err := r.resolve(ctx, names, view.Asking(), request.Source)
		if err != nil {
			return plan, err
		}
		o.Source = found.Commit
	}
	target, err := into.branch(ctx, names, "branch")
	if err != nil {
		return plan, err
	}
	o.Old = target.Commit
	o.Sequence = names.Sequence()
	if request.Expected != nil && *request.Expected != o.Old {
		return plan, &StaleError{Branch: request.Target.Name, Expected: *request.Expected, Actual: o.Old}
	}
	if plan.bases, err = revwalk.MergeBases(ctx, view, o.Old, o.Source); err != nil {
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

// mergeTrees merges the trees of a plan's tips.
func (r *Repository) mergeTrees(ctx context.Context, view *odb.View, request *MergeRequest, plan *mergePlan) error {
	o := &plan.outcome
	var result *merge.Result
	err := fair.Do(ctx, func(ctx context.Context) (err error) {
		result, err = merge.Commits(ctx, view, o.Old, o.Source, plan.bases, merge.Options{
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
