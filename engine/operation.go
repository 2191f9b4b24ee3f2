package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"packhorse/engine/commit"
	"packhorse/odb/file"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Operation is one step of a [Transaction]. It belongs to one transaction.
type Operation interface {
	// check refuses what can be judged without the repository.
	check(by *Actor) error
	// begin gets ready to take the contents that follow.
	begin(ctx context.Context, p *participant) error
	// contents are the IDs of these contents.
	contents() []string
	// take takes the next bytes of a content, and ended says which one has not ended; see
	// [Upload.Chunk].
	take(ctx context.Context, contentID string, data []byte, eof bool) error
	ended(ctx context.Context) error
	// likely are stored names of refs that it looks up.
	likely(r *Repository) []string
	// computes reports whether it may compute for long, so that it is worth a rehearsal.
	computes() bool
	// run makes the changes. What it has computed for the same refs before it uses again; where ahead
	// is set, it fails with errTargetMoved rather than compute for long.
	run(ctx context.Context, w *write, ahead bool) (Outcome, error)
	close() error
}

// Outcome is what an operation has come to. One field is set.
type Outcome struct {
	Commit  *CommitResult  `json:",omitempty"` // PackedBytes are those of its trees
	Merge   *MergeOutcome  `json:",omitempty"`
	Pick    *PickOutcome   `json:",omitempty"`
	Branch  *CreatedBranch `json:",omitempty"`
	Renamed *RenamedBranch `json:",omitempty"`
	Deleted *DeletedRef    `json:",omitempty"`
	Tag     *CreatedTag    `json:",omitempty"`
	Note    *NoteResult    `json:",omitempty"`
}

// plain is an operation without contents.
type plain struct{}

func (plain) begin(context.Context, *participant) error        { return nil }
func (plain) contents() []string                               { return nil }
func (plain) take(context.Context, string, []byte, bool) error { return nil }
func (plain) ended(context.Context) error                      { return nil }
func (plain) computes() bool                                   { return false }
func (plain) close() error                                     { return nil }

// CommitOperation is a commit of files whose contents follow.
type CommitOperation struct {
	UploadRequest
	upload *Upload
}

func (o *CommitOperation) check(*Actor) error {
	return errors.Join(o.Target.check(), o.Details.check())
}

func (o *CommitOperation) begin(ctx context.Context, p *participant) error {
	o.upload = &Upload{
		repo: p.repo, actor: p.actor, request: o.UploadRequest, view: p.view, objects: p.objects,
		contents: make(map[string]*content), meter: p.repo.host.space.Meter(),
	}
	if err := o.upload.arrange(); err != nil {
		return err
	}
	// Contents become deltas of what is there now. An operation before may make another tip, or fail.
	if parent, _, err := p.repo.parent(ctx, p.names, &CommitTarget{
		Branch: o.Target.Branch, Namespace: o.Target.Namespace, Base: o.Target.Base, BaseNamespace: o.Target.BaseNamespace,
	}); err == nil {
		tree, err := treeOf(ctx, p.view.Linked(), parent)
		if err == nil {
			err = o.upload.plan.Locate(ctx, p.view.Linked(), tree)
		}
		if err != nil {
			return err
		}
	}
	return o.upload.checkBlobs(ctx)
}

func (o *CommitOperation) contents() (ids []string) {
	for id := range o.upload.contents {
		ids = append(ids, id)
	}
	return ids
}

func (o *CommitOperation) take(ctx context.Context, contentID string, data []byte, eof bool) error {
	return o.upload.Chunk(ctx, contentID, data, eof)
}

func (o *CommitOperation) ended(context.Context) error { return o.upload.ended() }

func (o *CommitOperation) likely(*Repository) []string { return o.Target.likely() }

func (o *CommitOperation) computes() bool { return o.upload.plan.EditedCount() > 0 }

func (o *CommitOperation) run(ctx context.Context, w *write, _ bool) (Outcome, error) {
	return w.commitOutcome(ctx, &o.Target, &o.Details, o.upload.build, o.upload.blobCount)
}

func (o *CommitOperation) close() error {
	if o.upload == nil {
		return nil
	}
	return o.upload.closeBlobs()
}

// likely are stored names of refs that a commit to the target looks up.
func (t *CommitTarget) likely() []string {
	names := []string{t.stored()}
	if t.Base != "" {
		names = append(names, t.BaseNamespace.Full(branchPrefix+t.Base))
	}
	return names
}

// commitOutcome is [write.commit] as the outcome of an operation.
func (w *write) commitOutcome(
	ctx context.Context, t *CommitTarget, d *CommitDetails,
	build func(ctx context.Context, base object.ID) (object.ID, error), blobs func() int,
) (Outcome, error) {
	before := w.objects.PackedBytes()
	result, err := w.commit(ctx, t, d, build)
	if err != nil {
		return Outcome{}, err
	}
	result.PackedBytes, result.BlobCount = w.objects.PackedBytes()-before, blobs()
	return Outcome{Commit: &result}, nil
}

// PatchOperation is a commit of a patch, which follows as a content.
type PatchOperation struct {
	PatchRequest
	ContentID string
	// HeldMax is how many bytes of the patch stay in memory.
	HeldMax int
	upload  *PatchUpload
}

func (o *PatchOperation) check(*Actor) error {
	return errors.Join(o.Target.check(), o.Details.check())
}

func (o *PatchOperation) begin(_ context.Context, p *participant) error {
	if o.ContentID == "" {
		return invalid("content_id is required")
	}
	o.upload = &PatchUpload{
		repo: p.repo, actor: p.actor, request: o.PatchRequest, view: p.view, objects: p.objects,
		meter: p.repo.host.space.Meter(), text: file.NewSpillBuffer(p.repo.host.files, o.HeldMax),
	}
	return nil
}

func (o *PatchOperation) contents() []string { return []string{o.ContentID} }

func (o *PatchOperation) take(ctx context.Context, _ string, data []byte, eof bool) error {
	return o.upload.Chunk(ctx, data, eof)
}

func (o *PatchOperation) ended(ctx context.Context) error {
	if !o.upload.ended {
		return invalid("the content of the patch, content_id %q, has not ended", o.ContentID)
	}
	return o.upload.parse(ctx)
}

func (o *PatchOperation) likely(*Repository) []string { return o.Target.likely() }

func (o *PatchOperation) computes() bool { return true }

func (o *PatchOperation) run(ctx context.Context, w *write, _ bool) (Outcome, error) {
	return w.commitOutcome(ctx, &o.Target, &o.Details, o.upload.build, o.upload.blobCount)
}

func (o *PatchOperation) close() error {
	if o.upload == nil {
		return nil
	}
	return o.upload.text.Close()
}

// RestoreOperation is a commit of the tree of an earlier commit.
type RestoreOperation struct {
	plain
	RestoreRequest
}

func (o *RestoreOperation) check(*Actor) error {
	details := o.Details
	if strings.TrimSpace(details.Message) == "" {
		details.Message = "Restore"
	}
	err := errors.Join(o.Target.check(), details.check())
	o.Details.Committer = details.Committer
	return err
}

func (o *RestoreOperation) likely(r *Repository) []string {
	return append(o.Target.likely(), r.likely(o.Commit)...)
}

func (o *RestoreOperation) run(ctx context.Context, w *write, _ bool) (Outcome, error) {
	found, err := w.repo.resolve(ctx, w.names, w.objects.View(), o.Commit)
	if err != nil {
		return Outcome{}, err
	}
	details := o.Details
	if strings.TrimSpace(details.Message) == "" {
		details.Message = "Restore " + found.Commit.String()
	}
	return w.commitOutcome(ctx, &o.Target, &details, func(ctx context.Context, _ object.ID) (object.ID, error) {
		return treeOf(ctx, w.objects.View().Linked(), found.Commit)
	}, func() int { return 0 })
}

// MergeOperation merges a commit into a branch.
type MergeOperation struct {
	plain
	MergeRequest
	plan mergePlan
	err  error // of the plan
	// forgotten is that of the quarantine in which the plan is, and planned whether there is one.
	forgotten int
	planned   bool
}

// ConflictError is an outcome that a merge, a cherry-pick or a revert has alone, and that ends a
// transaction: a conflict, or a commit that changes nothing. One of the two is set.
type ConflictError struct {
	Merge *MergeOutcome
	Pick  *PickOutcome
}

// Is reports whether target is [ErrEmptyPick] and e is that a commit changes nothing.
func (e *ConflictError) Is(target error) bool {
	return target == ErrEmptyPick && e.Pick != nil && e.Pick.Kind == PickEmpty
}

func (e *ConflictError) Error() string {
	if e.Pick == nil {
		return "the branches conflict"
	}
	why := "conflicts with the target"
	if e.Pick.Kind == PickEmpty {
		why = "would change nothing: empty says what becomes of such a commit"
	}
	return fmt.Sprintf("commits[%d], %s, %s", e.Pick.Failed, e.Pick.Done[e.Pick.Failed].Source, why)
}

func (o *MergeOperation) check(*Actor) error { return o.MergeRequest.check() }

func (o *MergeOperation) begin(_ context.Context, p *participant) error {
	return o.Preview.checkRepo(p.repo)
}

func (o *MergeOperation) likely(r *Repository) []string {
	return append(r.likely(o.Source), o.Target.stored())
}

func (o *MergeOperation) computes() bool { return true }

func (o *MergeOperation) run(ctx context.Context, w *write, ahead bool) (Outcome, error) {
	view := w.objects.View()
	source, err := w.repo.resolve(ctx, w.names, view.Asking(), o.Source)
	if err != nil {
		return Outcome{}, err
	}
	tip, err := o.Target.tip(ctx, w.names, o.Expected)
	if err == nil && o.Preview != nil {
		err = o.Preview.checkTips(source.Commit, tip)
	}
	if err != nil {
		return Outcome{}, err
	}
	known := o.planned && o.forgotten == w.objects.Forgotten() &&
		o.plan.outcome.Source == source.Commit && o.plan.outcome.Old == tip
	if !known && ahead {
		return Outcome{}, errTargetMoved
	}
	if !known {
		o.plan, o.err = w.repo.planMerge(ctx, w.names, w.objects, &o.MergeRequest, source.Commit)
		o.plan.result = nil // its objects are in the quarantine
		o.planned, o.forgotten = ctx.Err() == nil, w.objects.Forgotten()
	}
	outcome := o.plan.outcome
	outcome.Sequence = w.names.Sequence()
	switch {
	case o.err != nil:
		return Outcome{}, unreadable(o.err)
	case outcome.Kind == MergeConflicted:
		return Outcome{}, &ConflictError{Merge: &outcome}
	case outcome.Kind == MergeNothing:
		return Outcome{Merge: &outcome}, nil
	}
	move := o.plan.move()
	if err := move.require(ctx, view.Linked()); err != nil {
		return Outcome{}, err
	}
	outcome.Sequence = w.names.After()
	return Outcome{Merge: &outcome}, w.names.Set(ctx, o.Target.stored(), &outcome.Old, outcome.Commit, object.ZeroID)
}

// PickOperation repeats commits on a branch, or takes them back.
type PickOperation struct {
	plain
	PickRequest
	sources []object.ID
	outcome PickOutcome
	err     error // of the outcome
	// forgotten is that of the quarantine in which the commits are, and planned whether there are any.
	forgotten int
	planned   bool
}

func (o *PickOperation) check(*Actor) error { return o.PickRequest.check() }

func (o *PickOperation) likely(r *Repository) []string {
	return append(r.likely(o.Commits...), o.Target.stored())
}

func (o *PickOperation) computes() bool { return true }

func (o *PickOperation) run(ctx context.Context, w *write, ahead bool) (Outcome, error) {
	sources, err := w.repo.resolveAll(ctx, w.names, w.objects.View(), o.Commits)
	if err != nil {
		return Outcome{}, err
	}
	tip, err := o.Target.tip(ctx, w.names, o.Expected)
	if err != nil {
		return Outcome{}, err
	}
	known := o.planned && o.forgotten == w.objects.Forgotten() && o.outcome.Old == tip && slices.Equal(o.sources, sources)
	if !known && ahead {
		return Outcome{}, errTargetMoved
	}
	if !known {
		o.outcome, o.err = w.repo.planPicks(ctx, w.names, w.objects, &o.PickRequest, sources)
		o.sources, o.planned, o.forgotten = sources, ctx.Err() == nil, w.objects.Forgotten()
	}
	outcome := o.outcome
	outcome.Sequence = w.names.Sequence()
	switch {
	case o.err != nil:
		return Outcome{}, unreadable(o.err)
	case outcome.Kind == PickConflicted, outcome.Kind == PickEmpty:
		return Outcome{}, &ConflictError{Pick: &outcome}
	case outcome.Kind == PickNothing:
		return Outcome{Pick: &outcome}, nil
	}
	move := outcome.move()
	if err := move.require(ctx, w.objects.View().Linked()); err != nil {
		return Outcome{}, err
	}
	outcome.Sequence = w.names.After()
	return Outcome{Pick: &outcome}, w.names.Set(ctx, o.Target.stored(), &outcome.Old, outcome.Commit, object.ZeroID)
}

// CreateBranchOperation creates a branch, or moves it.
type CreateBranchOperation struct {
	plain
	CreateBranchRequest
	// Expected is the tip that the branch must have, zero for none; nil expects nothing.
	Expected *object.ID
}

func (o *CreateBranchOperation) check(*Actor) error { return o.CreateBranchRequest.check() }

func (o *CreateBranchOperation) likely(r *Repository) []string {
	return append(r.likely(o.Base), o.Namespace.Full(branchPrefix+o.Branch))
}

func (o *CreateBranchOperation) run(ctx context.Context, w *write, _ bool) (Outcome, error) {
	created, err := w.createBranch(ctx, &o.CreateBranchRequest, o.Expected)
	return Outcome{Branch: &created}, err
}

// RenameBranchOperation gives a branch another name.
type RenameBranchOperation struct {
	plain
	Namespace refs.Namespace
	From, To  string
	// Expected is the tip that the branch must have; nil expects nothing.
	Expected *object.ID
}

func (o *RenameBranchOperation) check(*Actor) error {
	if _, err := o.Namespace.Branch(o.From); err != nil {
		return badName("target_branch", err)
	}
	if _, err := o.Namespace.Branch(o.To); err != nil {
		return badName("new_name", err)
	}
	return nil
}

func (o *RenameBranchOperation) likely(*Repository) []string {
	return []string{o.Namespace.Full(branchPrefix + o.From), o.Namespace.Full(branchPrefix + o.To)}
}

func (o *RenameBranchOperation) run(ctx context.Context, w *write, _ bool) (Outcome, error) {
	renamed, err := w.renameBranch(ctx, o.Namespace, o.From, o.To, o.Expected)
	return Outcome{Renamed: &renamed}, err
}

// DeleteRefOperation deletes a branch or a tag.
type DeleteRefOperation struct {
	plain
	Namespace refs.Namespace
	Name      string
	Tag       bool
	// Expected is the value that the ref must have; nil expects nothing.
	Expected *object.ID
	full     string
}

func (o *DeleteRefOperation) check(*Actor) (err error) {
	if o.Tag {
		if o.full, err = o.Namespace.Tag(o.Name); err != nil {
			return badName("name", err)
		}
		return nil
	}
	if o.full, err = o.Namespace.Branch(o.Name); err != nil {
		return badName("target_branch", err)
	}
	return nil
}

func (o *DeleteRefOperation) likely(*Repository) []string { return []string{o.full} }

func (o *DeleteRefOperation) run(ctx context.Context, w *write, _ bool) (Outcome, error) {
	missing := fail(ErrRefNotFound, "branch %q not found", o.Name)
	if o.Tag {
		missing = fail(ErrRefNotFound, "tag %q not found", o.Name)
	}
	deleted, err := w.deleteRef(ctx, o.full, o.Name, o.Expected, missing)
	return Outcome{Deleted: &deleted}, err
}

// CreateTagOperation creates a lightweight tag.
type CreateTagOperation struct {
	plain
	Namespace refs.Namespace
	Name      string
	Target    CommitName
	full      string
}

func (o *CreateTagOperation) check(*Actor) (err error) {
	if o.full, err = o.Namespace.Tag(o.Name); err != nil {
		return badName("name", err)
	}
	return nil
}

func (o *CreateTagOperation) likely(r *Repository) []string {
	return append(r.likely(o.Target), o.full)
}

func (o *CreateTagOperation) run(ctx context.Context, w *write, _ bool) (Outcome, error) {
	created, err := w.createTag(ctx, o.full, o.Name, o.Target)
	return Outcome{Tag: &created}, err
}

// NoteOperation adds a note, appends to one, or deletes one.
type NoteOperation struct {
	plain
	Target NoteTarget
	Text   string
	Append bool
	Delete bool
	author commit.Person
	change *noteChange
}

func (o *NoteOperation) check(by *Actor) (err error) {
	if o.author, err = o.Target.author(by); err != nil {
		return err
	}
	if o.Delete {
		o.change = removeNote(&o.Target)
		return nil
	}
	o.change, err = addNote(&o.Target, o.Text, o.Append)
	return err
}

func (o *NoteOperation) likely(*Repository) []string {
	return []string{o.Target.Namespace.Full(o.Target.Ref)}
}

func (o *NoteOperation) run(ctx context.Context, w *write, _ bool) (Outcome, error) {
	result, err := w.note(ctx, &o.Target, o.author, o.change)
	return Outcome{Note: &result}, err
}
