package rest

import (
	"net/http"
	"strings"

	"packhorse/api/auth"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/refs"
)

// previewJSON is the outcome that a merge would have: docs/api.md, "Merging".
type previewJSON struct {
	Status            string             `json:"status"`
	Result            engine.MergeKind   `json:"result"`
	SourceRef         string             `json:"source_ref"`
	SourceBranch      string             `json:"source_branch"` // older
	TargetBranch      string             `json:"target_branch"`
	SourceTipSHA      string             `json:"source_tip_sha"`
	TargetTipSHA      string             `json:"target_tip_sha"`
	MergeBaseSHA      string             `json:"merge_base_sha,omitempty"`
	ConflictPaths     []string           `json:"conflict_paths"`
	Conflicts         []conflictJSON     `json:"conflicts"`
	FilteredConflicts []filteredConflict `json:"filtered_conflicts"`
	PreviewToken      string             `json:"preview_token"`
}

type conflictJSON struct {
	Path   string      `json:"path"`
	Result versionJSON `json:"result"`
	Base   versionJSON `json:"base"`
	Ours   versionJSON `json:"ours"`
	Theirs versionJSON `json:"theirs"`
}

type versionJSON struct {
	OID       string  `json:"oid,omitempty"`
	Content   *string `json:"content,omitempty"`
	Truncated bool    `json:"truncated"`
	Binary    bool    `json:"binary"`
}

type filteredConflict struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// PreviewMerge answers GET /repos/merge/preview.
func (d *Door) PreviewMerge(x exchange.Exchange, grant *auth.Grant) error {
	query := x.Query()
	text, by := parameter(x, "source_ref", "source_branch")
	into := engine.MergeBranch{Name: query.Get("target_branch")}
	if text == "" || into.Name == "" {
		return badRequest("source_ref (or source_branch) and target_branch are required")
	}
	contents, err := flagOf(x, "include_content", false)
	if err != nil {
		return err
	}
	source := commitName(text, by, "source_branch", engine.BranchName, refs.Main)
	if source.Namespace, err = spaceBy(x, "source_is_ephemeral"); err != nil {
		return err
	}
	if into.Namespace, err = spaceBy(x, "target_is_ephemeral"); err != nil {
		return err
	}
	repo, err := d.open(x, grant)
	if err != nil {
		return err
	}
	preview, err := repo.PreviewMerge(x.Context(), source, into, contents)
	if err != nil {
		return err
	}
	return answer(x, http.StatusOK, previewOf(text, into.Name, &preview))
}

func previewOf(source, target string, preview *engine.MergePreview) previewJSON {
	told := previewJSON{
		Status:            "clean",
		Result:            preview.Kind,
		SourceRef:         source,
		SourceBranch:      source,
		TargetBranch:      target,
		SourceTipSHA:      preview.Source.String(),
		TargetTipSHA:      preview.Old.String(),
		MergeBaseSHA:      shaOrNone(preview.Base),
		ConflictPaths:     engine.ConflictPaths(preview.Conflicts),
		Conflicts:         []conflictJSON{},
		FilteredConflicts: []filteredConflict{},
		PreviewToken:      preview.Token.String(),
	}
	if preview.Kind == engine.MergeConflicted {
		told.Status, told.Result = "conflicted", engine.MergeCommitted
	}
	for i := range preview.Shown {
		c := &preview.Shown[i]
		told.Conflicts = append(told.Conflicts, conflictJSON{
			Path: c.Path, Result: versionOf(&c.Result), Base: versionOf(&c.Base), Ours: versionOf(&c.Ours),
			Theirs: versionOf(&c.Theirs),
		})
	}
	for _, c := range preview.Hidden {
		told.FilteredConflicts = append(told.FilteredConflicts, filteredConflict(c))
	}
	return told
}

// versionOf renders a version; bytes that are not UTF-8 cannot be in JSON and are replaced.
func versionOf(v *engine.ShownVersion) versionJSON {
	told := versionJSON{OID: shaOrNone(v.ID), Truncated: v.Truncated, Binary: v.Binary}
	if v.HasContent {
		content := strings.ToValidUTF8(string(v.Content), "\uFFFD")
		told.Content = &content
	}
	return told
}
