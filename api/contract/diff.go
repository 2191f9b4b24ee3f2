package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// CommitDiff is what a commit changed.
type CommitDiff struct {
	SHA          string `json:"sha" schema:"ObjectID"`
	BaseSHA      string `json:"base_sha,omitempty" schema:"ObjectID" jsonschema:"not for a root"`
	MergeBaseSHA string `json:"merge_base_sha,omitempty" schema:"ObjectID" jsonschema:"for information"`
	DiffTrees
	Diff
}

// BranchDiff is what a branch changed since its merge base.
type BranchDiff struct {
	Branch       string `json:"branch"`
	Base         string `json:"base"`
	MergeBaseSHA string `json:"merge_base_sha,omitempty" schema:"ObjectID" jsonschema:"if there is one"`
	DiffTrees
	Diff
}

// DiffTrees are the trees that are compared.
type DiffTrees struct {
	TreeSHA     string `json:"tree_sha" schema:"ObjectID" jsonschema:"the tree of the commit, or of the branch"`
	BaseTreeSHA string `json:"base_tree_sha,omitempty" schema:"ObjectID" jsonschema:"the tree that it is compared with, if there is one"`
}

// Diff is the part that all diffs have.
type Diff struct {
	Files         []FileDiff     `json:"files" jsonschema:"changed files with their diffs"`
	FilteredFiles []FilteredFile `json:"filtered_files" jsonschema:"changed files without raw"`
	Stats         DiffStats      `json:"stats" jsonschema:"of both lists, of a page only its own"`
	Complete      bool           `json:"complete" jsonschema:"whether filtered_files is empty"`
	NextCursor    string         `json:"next_cursor,omitempty" jsonschema:"cursor of the next page, if there is one"`
	HasMore       bool           `json:"has_more" schema:"optional" jsonschema:"of a page: whether there is another one"`
}

// ChangedFile is the part that both kinds of files have.
type ChangedFile struct {
	Path      string `json:"path" jsonschema:"the new path"`
	State     string `json:"state" schema:"FileState"`
	OldPath   string `json:"old_path" jsonschema:"the old path of a rename, else empty"`
	IsEOF     bool   `json:"is_eof" jsonschema:"whether the file ends with a line end"`
	Additions int64  `json:"additions" jsonschema:"lines; 0 for binary files and for reason size"`
	Deletions int64  `json:"deletions" jsonschema:"lines; 0 for binary files and for reason size"`
	Bytes     int64  `json:"bytes" jsonschema:"size of the diff; 0 for reason size"`
}

// FileDiff is a changed file with its diff.
type FileDiff struct {
	ChangedFile
	Raw       string       `json:"raw" jsonschema:"the output of git diff, with rename detection and full ids; all of them together can be applied with git apply"`
	RawBase64 string       `json:"raw_base64,omitempty" jsonschema:"the same bytes, if they are not UTF-8"`
	Inline    []InlineDiff `json:"inline,omitempty" jsonschema:"with inline=true: what differs within changed lines"`
}

// InlineDiff is a pair of changed lines.
type InlineDiff struct {
	OldLine int64      `json:"old_line" schema:"min=1"`
	NewLine int64      `json:"new_line" schema:"min=1"`
	Old     [][2]int64 `json:"old" jsonschema:"ranges of bytes in the line, from and to, from 0, without the end"`
	New     [][2]int64 `json:"new" jsonschema:"ranges of bytes in the line, from and to, from 0, without the end"`
}

// FilteredFile is a changed file whose diff is left out.
type FilteredFile struct {
	ChangedFile
	Reason string `json:"reason" schema:"enum=size|lines|binary|lock" jsonschema:"larger than 512,000 bytes, more than 2,000 changed lines, binary, or a lock file"`
}

// DiffStats are the numbers of a diff.
type DiffStats struct {
	Files     int64 `json:"files"`
	Additions int64 `json:"additions"`
	Deletions int64 `json:"deletions"`
	Changes   int64 `json:"changes"`
}

func diffCalls() []call {
	paths := openapi.Parameter{
		Name: "path", Repeated: true,
		Description: "Only these files and folders. Nothing is filtered then, and binary files have a `GIT binary patch`.",
	}
	inline := flag("inline", "Adds what differs within changed lines.")
	pages := limit(100, 1000)
	pages.Description += " A page ends earlier when its diffs have reached 1 MiB. Without `cursor` and `limit` the answer is not paged."
	const example = `"files": [{"path": "hello.txt", "state": "A", "old_path": "", "is_eof": true, "additions": 1, "deletions": 0,
   "raw": "diff --git a/hello.txt b/hello.txt\nnew file mode 100644\n…", "bytes": 196}],
 "filtered_files": [], "stats": {"files": 1, "additions": 1, "deletions": 0, "changes": 1}, "complete": true}`
	return []call{
		{
			v1: "/repos/diff", path: "/repos/{n}/diff", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "commitDiff", Group: diffs,
				Summary:     "compares a commit with another one",
				Description: "With its first parent, or a root commit with the empty tree; or directly with `base_ref`.",
				Parameters: query(
					openapi.Parameter{
						Name: "ref", Older: "sha", Required: true, Example: "7e0b46a13ca26dd703ee7b47673cd04387447f50",
						Description: "The commit: a full id, or another revision.",
					},
					flag("ref_is_ephemeral", "The namespace of `ref`."),
					openapi.Parameter{Name: "base_ref", Older: "baseSha", Description: "Compare with this commit instead."},
					flag("base_is_ephemeral", "The namespace of `base_ref`."),
					paths, inline, cursor, pages,
					openapi.Parameter{
						Name: "git_apply_compatible", Older: "gitApplyCompatible", Type: true,
						Description: "Accepted and without effect, since every diff is.",
					},
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The diff, streamed.", Type: CommitDiff{},
					Example: `{"sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50",
 "tree_sha": "cc75ab544f1c1179c840c3db535e6548ed04f205", ` + example,
				}},
				Errors: []openapi.Error{fails(http.StatusNotFound, "A commit, or the repository, does not exist.")},
			},
		},
		{
			v1: "/repos/branches/diff", path: "/repos/{n}/branches/diff", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "branchDiff", Group: diffs,
				Summary:     "compares a branch with its merge base",
				Description: "What a branch changed since it left another one. Without a common ancestor everything in it is new.",
				Parameters: query(
					openapi.Parameter{Name: "branch", Required: true, Description: "A revision.", Example: "topic"},
					flag("ephemeral", "The namespace of `branch`."),
					openapi.Parameter{Name: "base", Description: "A revision; the default branch without it."},
					flag("ephemeral_base", "The namespace of `base`."),
					paths, inline, cursor, pages,
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The diff, streamed.", Type: BranchDiff{},
					Example: `{"branch": "topic", "base": "main",
 "merge_base_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50",
 "tree_sha": "cc75ab544f1c1179c840c3db535e6548ed04f205",
 "base_tree_sha": "cc75ab544f1c1179c840c3db535e6548ed04f205", ` + example,
				}},
				Errors: []openapi.Error{fails(http.StatusNotFound, "A branch, or the repository, does not exist.")},
			},
		},
	}
}
