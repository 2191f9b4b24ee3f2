package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"packhorse/engine/commit"
	"packhorse/engine/patch"
	"packhorse/odb"
	"packhorse/odb/file"
	"packhorse/odb/space"
	"packhorse/pack/object"
)

// PatchRequest describes a commit whose changes follow as a patch.
type PatchRequest struct {
	Target  CommitTarget
	Details CommitDetails
}

// PatchUpload is a commit whose patch is arriving. It is used by one goroutine, which closes it.
//
// The patch is kept until it has been applied, in memory while it is small and in a scratch file
// otherwise: it is read once to check its syntax, and again for each tip that it is applied to.
type PatchUpload struct {
	repo    *Repository
	actor   Actor
	request PatchRequest
	view    *odb.View
	objects *odb.Quarantine

	text  *file.SpillBuffer
	meter space.Meter
	ended bool

	patch *patch.Patch
	ready appliedPatch
}

// appliedPatch is the result of a patch on one tree.
type appliedPatch struct {
	base    object.ID
	plan    *commit.Plan
	changes []patch.Change
	// forgotten is that of the quarantine, which has what the patch wrote only if it is the same.
	forgotten int
}

// patchBytesMax is how large a patch may be.
const patchBytesMax = 256 << 20

// NewPatchUpload begins a commit from a patch. It refuses at once a request that is bound to fail,
// unless an idempotency key may have to replay an earlier success.
//
// Errors: [ErrInvalid], [ErrNotFound], [ErrStale], space.ErrShort.
func (r *Repository) NewPatchUpload(ctx context.Context, actor Actor, request PatchRequest) (*PatchUpload, error) {
	if err := errors.Join(request.Target.check(), request.Details.check()); err != nil {
		return nil, err
	}
	if err := r.host.space.Check(); err != nil {
		return nil, err
	}
	u := &PatchUpload{
		repo: r, actor: actor, request: request, meter: r.host.space.Meter(),
		text: r.NewSpillBuffer(),
	}
	_, view, err := r.openTarget(ctx, &u.actor, &request.Target)
	if err != nil {
		return nil, err
	}
	u.view = view
	u.objects = view.NewQuarantine(ctx)
	return u, nil
}

// Close discards an uncommitted upload.
func (u *PatchUpload) Close() error {
	defer u.actor.hold.Release()
	return errors.Join(u.objects.Close(), u.view.Close(), u.text.Close())
}

// Chunk takes the next bytes of the patch; with eof they are its last. data is only read. Errors:
// [ErrInvalid], [ErrTooLarge], space.ErrShort.
func (u *PatchUpload) Chunk(ctx context.Context, data []byte, eof bool) error {
	if u.ended {
		return invalid("diff_chunk: the patch has already ended")
	}
	u.ended = eof
	if u.text.Size()+int64(len(data)) > patchBytesMax {
		return &LimitError{Limit: "size of the patch in bytes", Max: patchBytesMax}
	}
	if err := u.meter.Add(len(data)); err != nil {
		return err
	}
	if err := u.text.Write(ctx, data); err != nil {
		return fmt.Errorf("keep patch: %w", err)
	}
	return nil
}

// IsLarge reports whether applying the patch will hold more memory than the patch of a day's work
// does.
func (u *PatchUpload) IsLarge() bool {
	_, inMemory := u.text.InMemory()
	return !inMemory
}

// Finish applies the patch, makes the commit and returns when it is durable. The request's
// idempotency record, if it has one, is complete by now.
//
// Errors: [ErrInvalid], [ErrNoChange] for an empty patch, [ErrConflict] for one that does not
// apply, patch.ErrMalformed, patch.ErrTooLarge, commit.ErrInvalid, [ErrNotFound], [ErrStale],
// refs.ErrDenied, refs.ErrBusy, refs.ErrReceiptMismatch.
func (u *PatchUpload) Finish(ctx context.Context) (CommitResult, error) {
	if !u.ended {
		return CommitResult{}, invalid("diff_chunk: the patch has not ended")
	}
	if err := u.parse(ctx); err != nil {
		return CommitResult{}, err
	}
	u.rehearse(ctx)
	return u.repo.commitTo(ctx, &u.actor, "diff-commit", &u.request.Target, &u.request.Details, u.objects, u.blobCount,
		u.build)
}

// build makes the tree of the commit on the tree base.
func (u *PatchUpload) build(ctx context.Context, base object.ID) (object.ID, error) {
	if err := u.apply(ctx, base); err != nil {
		return object.ZeroID, err
	}
	return u.ready.plan.Apply(ctx, u.objects, base)
}

// blobCount counts the files that the patch writes.
func (u *PatchUpload) blobCount() (count int) {
	for _, c := range u.ready.changes {
		if !c.Remove && !c.Mode.IsGitlink() {
			count++
		}
	}
	return count
}

// parse checks the form of the patch.
func (u *PatchUpload) parse(ctx context.Context) error {
	limits := u.repo.host.limits
	p, err := patch.Parse(ctx, u.text, u.text.Size(), patch.Limits{
		FileCountMax: limits.OperationCountMax,
		BlobBytesMax: u.repo.host.objects.Limits().ObjectBytes,
	})
	switch {
	case errors.Is(err, patch.ErrEmpty) && u.isBlank():
		return &failure{kind: ErrNoChange, text: "the diff is empty"}
	case errors.Is(err, patch.ErrEmpty):
		return fail(patch.ErrEmpty, "the diff holds no patch")
	}
	u.patch = p
	return err
}

// isBlank reports whether the patch consists of white space.
func (u *PatchUpload) isBlank() bool {
	text, inMemory := u.text.InMemory()
	return inMemory && len(bytes.TrimSpace(text)) == 0
}

// rehearse applies the patch to the current tip, outside of the repository's turn. It leaves
// failures to the transaction.
func (u *PatchUpload) rehearse(ctx context.Context) {
	_ = u.repo.rehearse(ctx, &u.actor, &u.request.Target, u.objects, u.apply)
}

// apply computes the result of the patch on the tree base.
func (u *PatchUpload) apply(ctx context.Context, base object.ID) error {
	if u.ready.plan != nil && u.ready.base == base && u.ready.forgotten == u.objects.Forgotten() {
		return nil
	}
	outcome, err := u.patch.Apply(ctx, u.objects, base)
	if err != nil {
		return err
	}
	if outcome.Rejected != nil {
		return &failure{kind: ErrConflict, text: "the patch does not apply: " + outcome.Rejected.String()}
	}
	operations := make([]commit.Operation, len(outcome.Changes))
	for i, c := range outcome.Changes {
		operations[i] = commit.Operation{Path: c.Path, Delete: c.Remove, Mode: c.Mode, Content: c.ID}
	}
	plan, err := commit.NewPlan(operations)
	if err != nil {
		return err
	}
	u.ready = appliedPatch{base: base, plan: plan, changes: outcome.Changes, forgotten: u.objects.Forgotten()}
	return nil
}
