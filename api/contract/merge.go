package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// Merge is the body of a merge.
type Merge struct {
	SourceRef         string       `json:"source_ref" jsonschema:"what to merge: a branch, or another revision; required without preview_token"`
	SourceBranch      string       `json:"source_branch" schema:"older=source_ref"`
	SourceIsEphemeral bool         `json:"source_is_ephemeral" jsonschema:"its namespace"`
	TargetBranch      string       `json:"target_branch" jsonschema:"the branch that moves; required without preview_token"`
	TargetIsEphemeral bool         `json:"target_is_ephemeral" jsonschema:"its namespace"`
	Strategy          string       `json:"strategy" schema:"enum=merge|ff_only|ff_prefer" jsonschema:"always make a commit; fast-forward or fail; fast-forward if possible; required without preview_token"`
	Squash            bool         `json:"squash" jsonschema:"makes one commit with the target as its only parent; not with ff_only"`
	ExpectedTargetSHA string       `json:"expected_target_sha" schema:"Expected" jsonschema:"the tip that the target must have; 409 if it has another one"`
	CommitMessage     string       `json:"commit_message" jsonschema:"required if a commit is made"`
	Author            *Person      `json:"author" jsonschema:"required if a commit is made"`
	Committer         *Person      `json:"committer" jsonschema:"the author by default"`
	AllowUnrelated    bool         `json:"allow_unrelated_histories" jsonschema:"merges branches without a common ancestor"`
	PreviewToken      string       `json:"preview_token" jsonschema:"of a preview: the merge is made as it was shown, or 409; source_ref, target_branch and strategy are not needed"`
	Resolutions       []Resolution `json:"resolutions" jsonschema:"what becomes of paths that conflict"`
	Rehearsal
}

// Resolution says what becomes of a path that conflicts, by one of side, content, blob_sha and
// delete.
type Resolution struct {
	Path    string `json:"path" schema:"required" jsonschema:"a path of conflict_paths"`
	Side    string `json:"side" schema:"enum=ours|theirs|base" jsonschema:"takes the version that a side has there, or removes the file if it has none"`
	Content string `json:"content" jsonschema:"the new content"`
	BlobSHA string `json:"blob_sha" schema:"ObjectID" jsonschema:"a blob of this repository"`
	Mode    string `json:"mode" schema:"enum=100644|100755|120000" jsonschema:"of content or blob_sha; that of the merged file by default"`
	Delete  bool   `json:"delete" jsonschema:"removes the file"`
}

// Merged is the answer to a merge.
type Merged struct {
	Result          string       `json:"result" schema:"enum=merge_commit|fast_forward|squash|no_op"`
	CommitSHA       string       `json:"commit_sha" schema:"ObjectID" jsonschema:"the target's tip now"`
	TreeSHA         string       `json:"tree_sha" schema:"ObjectID"`
	Source          MergedSource `json:"source"`
	Target          MergedTarget `json:"target"`
	MergeBaseSHA    string       `json:"merge_base_sha,omitempty" schema:"ObjectID" jsonschema:"the newest merge base, if there is one"`
	PromotedCommits int          `json:"promoted_commits" jsonschema:"commits of the source that were new to the target"`
	Rehearsed
}

// MergedSource is what was merged.
type MergedSource struct {
	Ref       string `json:"ref"`
	Branch    string `json:"branch" schema:"older=ref"`
	Ephemeral bool   `json:"ephemeral"`
	SHA       string `json:"sha" schema:"ObjectID"`
}

// MergedTarget is the branch that moved.
type MergedTarget struct {
	Branch    string `json:"branch"`
	Ephemeral bool   `json:"ephemeral"`
	OldSHA    string `json:"old_sha" schema:"ObjectID"`
	NewSHA    string `json:"new_sha" schema:"ObjectID"`
}

// MergeConflict is the error of branches that conflict, and of a target that has moved.
type MergeConflict struct {
	Failure
	ConflictType      string   `json:"conflict_type,omitempty" schema:"enum=merge_conflict|target_moved|source_moved|result_changed|no_such_conflict"`
	ConflictPaths     []string `json:"conflict_paths" schema:"optional" jsonschema:"sorted; empty but for merge_conflict"`
	MergeBaseSHA      string   `json:"merge_base_sha,omitempty" schema:"ObjectID"`
	UnresolvablePaths []string `json:"unresolvable_paths,omitempty" jsonschema:"those of conflict_paths that resolutions cannot name"`
}

// MergePreview is what a merge would do.
type MergePreview struct {
	Status            string             `json:"status" schema:"enum=clean|conflicted"`
	Result            string             `json:"result" schema:"enum=merge_commit|fast_forward|no_op"`
	SourceRef         string             `json:"source_ref"`
	SourceBranch      string             `json:"source_branch" schema:"older=source_ref"`
	TargetBranch      string             `json:"target_branch"`
	SourceTipSHA      string             `json:"source_tip_sha" schema:"ObjectID"`
	TargetTipSHA      string             `json:"target_tip_sha" schema:"ObjectID"`
	MergeBaseSHA      string             `json:"merge_base_sha,omitempty" schema:"ObjectID" jsonschema:"the newest merge base, if there is one"`
	ConflictPaths     []string           `json:"conflict_paths" jsonschema:"sorted"`
	Conflicts         []Conflict         `json:"conflicts" jsonschema:"at most 1,000"`
	FilteredConflicts []FilteredConflict `json:"filtered_conflicts" jsonschema:"further conflicts"`
	PreviewToken      string             `json:"preview_token" jsonschema:"for a merge as it is shown here"`
}

// Conflict is a path that conflicts.
type Conflict struct {
	Path   string          `json:"path"`
	Result ConflictVersion `json:"result" jsonschema:"what git would write to the work tree, with conflict markers"`
	Base   ConflictVersion `json:"base"`
	Ours   ConflictVersion `json:"ours" jsonschema:"the target"`
	Theirs ConflictVersion `json:"theirs" jsonschema:"the source"`
}

// ConflictVersion is one side of a conflict.
type ConflictVersion struct {
	OID       string `json:"oid,omitempty" schema:"ObjectID"`
	Content   string `json:"content,omitempty" jsonschema:"with include_content; cut at 256 KiB"`
	Truncated bool   `json:"truncated"`
	Binary    bool   `json:"binary"`
}

// FilteredConflict is a conflict that is not shown in full.
type FilteredConflict struct {
	Path   string `json:"path"`
	Reason string `json:"reason" schema:"enum=too many conflicts|too large|submodule|folder"`
}

func mergeCalls() []call {
	notThere := fails(http.StatusNotFound, "A branch, or the repository, does not exist.")
	tooLarge := fails(http.StatusRequestEntityTooLarge, "The merge makes too many bytes, compares too many paths, or computes for too long.")
	pastQuota := openapi.Error{
		Status: tooLarge.Status, Type: QuotaFailure{},
		Description: "The merge makes too many bytes, compares too many paths, computes for too long, or would pass a quota.",
	}
	unreadable := fails(http.StatusBadGateway, "Stored objects that the merge needs are damaged or missing.")
	return []call{
		{
			v1: "/repos/merge", path: "/repos/{n}/merge", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "merge", Group: merging,
				Summary: "merges a branch into another one",
				Description: "If the target already contains the source, nothing happens, whatever the strategy. If the target moves " +
					"meanwhile and no tip was expected, the same source is merged into the new tip. A conflict stores nothing.",
				Body: &openapi.Body{
					Type: Merge{},
					Example: `{"source_ref": "topic", "target_branch": "main", "strategy": "merge", "commit_message": "Merge topic",
  "author": {"name": "Ada", "email": "ada@example.com"}}`,
				},
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "Done, or nothing to do.", Type: Merged{},
					Example: `{"result": "fast_forward", "commit_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326",
 "tree_sha": "378eaa11b3fa985c3e48b6ec2e7264d7dc2e3978",
 "source": {"ref": "main", "branch": "main", "ephemeral": false,
  "sha": "25a01281fc66fb88e1f29f4da2631716a2e58326"},
 "target": {"branch": "quiet", "ephemeral": false, "old_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50",
  "new_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326"},
 "merge_base_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50", "promoted_commits": 1}`,
				}},
				Errors: []openapi.Error{
					fails(http.StatusBadRequest, "A field is missing or malformed, both branches are the same, or `squash` comes with `ff_only`."),
					notThere,
					{
						Status:      http.StatusConflict,
						Description: "The branches conflict, a resolution is of a path that does not, the target has not the expected tip.",
						Type:        MergeConflict{},
						Example: `{"error": "the branches conflict", "code": "merge_conflict",
 "conflict_type": "merge_conflict", "conflict_paths": ["hello.txt"],
 "merge_base_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50"}`,
					},
					fails(http.StatusPreconditionFailed, "`ff_only` cannot fast-forward, or the histories are unrelated."),
					pastQuota, unreadable,
				},
			},
		},
		{
			v1: "/repos/merge/preview", path: "/repos/{n}/merge/preview",
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "previewMerge", Group: merging,
				Summary:     "shows what a merge would do",
				Description: "What a merge with `ff_prefer` would do; nothing is written. A conflict is 200.",
				Parameters: query(
					openapi.Parameter{
						Name: "source_ref", Older: "source_branch", Required: true, Description: "What to merge.", Example: "topic",
					},
					flag("source_is_ephemeral", "Its namespace."),
					openapi.Parameter{Name: "target_branch", Required: true, Description: "The branch that would move.", Example: "main"},
					flag("target_is_ephemeral", "Its namespace."),
					flag("include_content", "Adds the contents of conflicting files, 8 MiB at most."),
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The outcome.", Type: MergePreview{},
					Example: `{"status": "clean", "result": "merge_commit", "source_ref": "topic", "source_branch": "topic",
 "target_branch": "main", "source_tip_sha": "4ba9c00da72379b9be872bc6c14c46f1c21443c7",
 "target_tip_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326",
 "merge_base_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50", "conflict_paths": [], "conflicts": [],
 "filtered_conflicts": [], "preview_token": "AQABj1wSq4l5bK"}`,
				}},
				Errors: []openapi.Error{
					notThere, fails(http.StatusPreconditionFailed, "The histories are unrelated."), tooLarge, unreadable,
				},
			},
		},
	}
}
