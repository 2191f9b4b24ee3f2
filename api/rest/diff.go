package rest

import (
	"context"
	"errors"
	"io"
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/api/problem"
	"packhorse/engine"
	"packhorse/pack/object"
)

// CommitDiff answers GET /repos/diff.
func (d *Door) CommitDiff(x exchange.Exchange, grant *auth.Grant) error {
	ref, refBy := parameter(x, "ref", "sha")
	if ref == "" {
		return badRequest("ref or sha is required")
	}
	base, baseBy := parameter(x, "base_ref", "baseSha")
	if _, err := flagParameter(x, "git_apply_compatible", "gitApplyCompatible", true); err != nil { // all diffs are
		return err
	}
	space, err := spaceBy(x, "ref_is_ephemeral")
	if err != nil {
		return err
	}
	baseSpace, err := spaceBy(x, "base_is_ephemeral")
	if err != nil {
		return err
	}
	options, err := diffOptionsOf(x)
	if err != nil {
		return err
	}
	repo, err := d.openAt(x, grant, nil)
	if err != nil {
		return err
	}
	diff, err := repo.CommitDiff(x.Context(), engine.CommitDiffRequest{
		Commit:      commitName(ref, refBy, "sha", engine.FullID, space),
		Base:        commitName(base, baseBy, "baseSha", engine.FullID, baseSpace),
		DiffOptions: options,
	}, x)
	if err != nil {
		return err
	}
	head := appendTextField([]byte{'{'}, "sha", diff.Commit.String())
	streamDiff(x, repo, diff, options, appendID(head, "base_sha", diff.BaseCommit))
	return nil
}

// BranchDiff answers GET /repos/branches/diff.
func (d *Door) BranchDiff(x exchange.Exchange, grant *auth.Grant) error {
	values := x.Query()
	if values.Get("branch") == "" {
		return badRequest("branch is required")
	}
	space, err := spaceOf(x)
	if err != nil {
		return err
	}
	baseSpace, err := spaceBy(x, "ephemeral_base")
	if err != nil {
		return err
	}
	options, err := diffOptionsOf(x)
	if err != nil {
		return err
	}
	repo, err := d.openAt(x, grant, nil)
	if err != nil {
		return err
	}
	diff, err := repo.BranchDiff(x.Context(), engine.BranchDiffRequest{
		Branch:        values.Get("branch"),
		Namespace:     space,
		Base:          values.Get("base"),
		BaseNamespace: baseSpace,
		DiffOptions:   options,
	}, x)
	if err != nil {
		return err
	}
	head := appendTextField([]byte{'{'}, "branch", diff.Branch)
	streamDiff(x, repo, diff, options, appendTextField(head, "base", diff.Base))
	return nil
}

// Page sizes of diffs: docs/api.md, "Diffs".
const (
	diffLimitDefault = 100
	diffLimitMax     = 1000
)

func diffOptionsOf(x exchange.Exchange) (engine.DiffOptions, error) {
	query := x.Query()
	inline, err := flagOf(x, "inline", false)
	if err != nil {
		return engine.DiffOptions{}, err
	}
	limit, err := pageOf(x, diffLimitDefault, diffLimitMax)
	return engine.DiffOptions{Paths: query["path"], Inline: inline, Limit: limit, Cursor: query.Get("cursor")}, err
}

// appendID appends a field with an object id, unless it is zero.
func appendID(dst []byte, name string, id object.ID) []byte {
	if id.IsZero() {
		return dst
	}
	return appendTextField(dst, name, id.String())
}

// streamDiff answers with the files of a diff, each as soon as it is known; head begins the object.
func streamDiff(
	x exchange.Exchange, repo *engine.Repository, diff *engine.Diff, o engine.DiffOptions, head []byte,
) {
	head = appendID(head, "merge_base_sha", diff.MergeBase)
	// Without a commit to compare with there is only one tree.
	head = appendID(appendID(head, "tree_sha", diff.Tree), "base_tree_sha", diff.BaseTree)
	x.Stream(http.StatusOK, problem.ContentType, func(ctx context.Context, w io.Writer) error {
		defer diff.Close()
		filtered := repo.NewSpillBuffer()
		out := newDiffStream(ctx, w, filtered, o)
		defer out.close()
		return errors.Join(out.write(head, diff), filtered.Close())
	})
}
