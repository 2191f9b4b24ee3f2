package engine

import (
	"context"
	"errors"

	"packhorse/engine/merge"
	"packhorse/pack/object"
)

// MergePreview is the expected outcome of a merge.
type MergePreview struct {
	MergeOutcome
	// Token makes a merge land as it is shown here.
	Token PreviewToken
	// Shown are the conflicts with the versions of both sides.
	Shown []ShownConflict
	// Hidden are conflicts that are not shown, with the reason.
	Hidden []HiddenConflict
}

// ShownConflict is a path that the sides disagree on, with the versions of it. Result is the
// content that git would write to the work tree.
type ShownConflict struct {
	Path                       string
	Result, Base, Ours, Theirs ShownVersion
}

// ShownVersion is one version of a conflicting file; the zero value is an absent one.
type ShownVersion struct {
	ID      object.ID
	Content []byte // none if contents were not requested, or for a binary file
	// HasContent distinguishes an empty content from none.
	HasContent bool
	Truncated  bool
	Binary     bool
}

// HiddenConflict is a conflict without versions.
type HiddenConflict struct{ Path, Reason string }

// Bounds of a preview with contents.
const (
	previewFileMax     = 256 << 10 // bytes of a version that are shown
	previewBytesMax    = 8 << 20   // of all versions
	previewConflictMax = 1000      // conflicts that are shown
)

// Why a conflict is not shown.
const (
	hiddenCount     = "too many conflicts"
	hiddenSize      = "too large"
	hiddenSubmodule = "submodule"
	hiddenFolder    = "folder"
)

// PreviewMerge returns the outcome that a merge of a commit into a branch would have, and changes
// nothing. contents includes the versions of conflicting files, within bounds.
//
// Errors: [ErrInvalid]; [ErrNotFound]; merge.ErrUnrelated, merge.ErrTooLarge; [ErrUnreadable].
func (r *Repository) PreviewMerge(
	ctx context.Context, source CommitName, target MergeBranch, contents bool,
) (preview MergePreview, err error) {
	request := MergeRequest{Source: source, Target: target, Strategy: PreferForward}
	if err := request.check(); err != nil {
		return preview, err
	}
	view, err := r.Objects(ctx)
	if err != nil {
		return preview, err
	}
	defer func() { err = unreadable(errors.Join(err, view.Close())) }()
	view = view.Linked() // branches lead to all of it
	names, err := r.names(ctx, append(r.likely(source), target.stored())...)
	if err != nil {
		return preview, err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	plan, err := r.relate(ctx, names, view, &request, object.ZeroID)
	if err != nil {
		return preview, err
	}
	switch plan.outcome.Kind {
	case MergeForwarded:
		plan.outcome.Tree, err = treeOf(ctx, view, plan.outcome.Source)
	case MergeNothing:
	default:
		if err = r.mergeTrees(ctx, view, &request, &plan); err == nil {
			plan.outcome.Tree = plan.result.Tree
		}
	}
	if err != nil {
		return preview, err
	}
	preview.MergeOutcome = plan.outcome
	preview.Token = PreviewToken{
		Repo: r.record.ID, Source: source, Target: target,
		SourceTip: plan.outcome.Source, TargetTip: plan.outcome.Old, Tree: plan.outcome.Tree,
	}
	if plan.result == nil {
		return preview, nil
	}
	if plan.result.Clean() {
		preview.Kind = MergeCommitted
		return preview, nil
	}
	s := &showing{result: plan.result, contents: contents, left: previewBytesMax}
	for i := range plan.result.Conflicts {
		if err := s.show(ctx, &preview, &plan.result.Conflicts[i]); err != nil {
			return preview, err
		}
	}
	return preview, nil
}

// showing collects the versions of conflicting files.
type showing struct {
	result   *merge.Result
	contents bool
	left     int64 // bytes that may be shown yet
}

func (s *showing) show(ctx context.Context, preview *MergePreview, c *merge.Conflict) error {
	hide := func(reason string) error {
		preview.Hidden = append(preview.Hidden, HiddenConflict{c.Path, reason})
		return nil
	}
	if !c.Staged() {
		return hide(hiddenFolder)
	}
	if len(preview.Shown) == previewConflictMax {
		return hide(hiddenCount)
	}
	found, err := s.result.Find(ctx, c.Path)
	if err != nil {
		return err
	}
	versions := [4]merge.Version{found, c.Stages[0], c.Stages[1], c.Stages[2]}
	var shown [4]ShownVersion
	for i, v := range versions {
		if v.Mode.IsGitlink() {
			return hide(hiddenSubmodule)
		}
		if shown[i], err = s.version(ctx, v); err != nil {
			return err
		}
	}
	if s.left < 0 {
		return hide(hiddenSize)
	}
	preview.Shown = append(preview.Shown, ShownConflict{c.Path, shown[0], shown[1], shown[2], shown[3]})
	return nil
}

func (s *showing) version(ctx context.Context, v merge.Version) (ShownVersion, error) {
	if v.Mode == 0 || v.Mode.IsTree() {
		return ShownVersion{}, nil
	}
	shown := ShownVersion{ID: v.ID}
	data, size, err := s.result.Open(ctx, v.ID, previewFileMax)
	if err != nil {
		return shown, err
	}
	shown.Truncated = size > int64(len(data))
	if shown.Binary = merge.IsBinary(data); shown.Binary || !s.contents {
		shown.Truncated = shown.Truncated && s.contents
		return shown, nil
	}
	if s.left -= int64(len(data)); s.left >= 0 {
		shown.Content, shown.HasContent = data, true
	}
	return shown, nil
}
