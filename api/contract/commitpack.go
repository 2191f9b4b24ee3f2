package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// CommitPackLine is the first line of commit-pack.
type CommitPackLine struct {
	Metadata PackMetadata `json:"metadata" schema:"required"`
}

// BlobLine is each further line of commit-pack.
type BlobLine struct {
	BlobChunk BlobChunk `json:"blob_chunk" schema:"required"`
}

// DiffCommitLine is the first line of diff-commit.
type DiffCommitLine struct {
	Metadata NewCommitMetadata `json:"metadata" schema:"required"`
}

// DiffLine is each further line of diff-commit.
type DiffLine struct {
	DiffChunk DiffChunk `json:"diff_chunk" schema:"required"`
}

// CommitMetadata has the fields of each commit.
type CommitMetadata struct {
	TargetBranch      string  `json:"target_branch" schema:"required" jsonschema:"the branch, without refs/"`
	TargetIsEphemeral bool    `json:"target_is_ephemeral" jsonschema:"its namespace"`
	Ephemeral         bool    `json:"ephemeral" schema:"older=target_is_ephemeral"`
	Author            Person  `json:"author" schema:"required"`
	Committer         *Person `json:"committer" jsonschema:"the author by default"`
	ExpectedTargetSHA string  `json:"expected_target_sha" schema:"Expected" jsonschema:"the tip that the branch must have; 409 if it has another one"`
	ExpectedHeadSHA   string  `json:"expected_head_sha" schema:"Expected,older=expected_target_sha"`
	AllowEmpty        bool    `json:"allow_empty" schema:"default=true" jsonschema:"false: no commit that changes nothing"`
	Rehearsal
}

// NewCommitMetadata is the metadata of a commit with content.
type NewCommitMetadata struct {
	CommitMetadata
	CommitMessage   string `json:"commit_message" schema:"required" jsonschema:"stored with a line end"`
	BaseBranch      string `json:"base_branch" jsonschema:"where a new branch starts"`
	BaseIsEphemeral bool   `json:"base_is_ephemeral" jsonschema:"the namespace of base_branch"`
	EphemeralBase   bool   `json:"ephemeral_base" schema:"older=base_is_ephemeral"`
}

// PackMetadata is the metadata of commit-pack.
type PackMetadata struct {
	NewCommitMetadata
	Files []FileOperation `json:"files" schema:"required,min=1,max=100000"`
}

// FileOperation is a file to write, or a path to delete. What it says of the tree is said of the
// tree before the commit.
type FileOperation struct {
	Path      string     `json:"path" schema:"required" jsonschema:"relative to the root; leading slashes are ignored"`
	Operation string     `json:"operation" schema:"enum=upsert|delete|move|copy|edit,default=upsert"`
	ContentID string     `json:"content_id" jsonschema:"of upsert: the content to write"`
	BlobSHA   string     `json:"blob_sha" schema:"ObjectID" jsonschema:"of upsert, in place of content_id: a blob that this repository has"`
	From      string     `json:"from" jsonschema:"of move and copy, required: the file or folder that path gets, with its mode"`
	Edits     []FileEdit `json:"edits" schema:"min=1,max=10000" jsonschema:"required for edit, possible for move and copy: applied in order"`
	Mode      string     `json:"mode" schema:"enum=100644|100755|120000|160000" jsonschema:"of upsert and edit: an existing file keeps its mode without it, a new file gets 100644"`
}

// FileEdit replaces exact text in a file.
type FileEdit struct {
	Old   string `json:"old" schema:"required,min=1" jsonschema:"the text to replace"`
	New   string `json:"new" schema:"required" jsonschema:"what takes its place"`
	Count int    `json:"count" schema:"min=1,default=1" jsonschema:"how often old must be there; all places are replaced, or 409"`
}

// BlobChunk is a part of a content.
type BlobChunk struct {
	ContentID string `json:"content_id" schema:"required" jsonschema:"the content that this chunk belongs to"`
	Data      string `json:"data" jsonschema:"its next bytes in padded base64, at most 4 MiB decoded"`
	EOF       bool   `json:"eof" jsonschema:"true on the last chunk of a content"`
}

// DiffChunk is a part of a patch.
type DiffChunk struct {
	Data string `json:"data" jsonschema:"the next bytes of the patch in padded base64, at most 4 MiB decoded"`
	EOF  bool   `json:"eof" jsonschema:"true on the last chunk"`
}

// RestoreCommit is the body of restore-commit.
type RestoreCommit struct {
	Metadata RestoreMetadata `json:"metadata" schema:"required"`
}

// RestoreMetadata is the metadata of restore-commit.
type RestoreMetadata struct {
	CommitMetadata
	BaseRef         string `json:"base_ref" schema:"required" jsonschema:"the revision whose tree is restored"`
	TargetCommitSHA string `json:"target_commit_sha" schema:"ObjectID,older=base_ref"`
	CommitMessage   string `json:"commit_message" jsonschema:"says which commit is restored by default"`
}

// CommitAnswer is the answer to a commit.
type CommitAnswer struct {
	Commit NewCommit `json:"commit"`
	Result RefResult `json:"result"`
	Rehearsed
}

// NewCommit is a commit that was made.
type NewCommit struct {
	CommitSHA    string `json:"commit_sha" schema:"ObjectID"`
	TreeSHA      string `json:"tree_sha" schema:"ObjectID"`
	TargetBranch string `json:"target_branch"`
	PackBytes    int64  `json:"pack_bytes" jsonschema:"stored size of the new objects"`
	BlobCount    int    `json:"blob_count" schema:"optional" jsonschema:"number of contents; commit-pack only"`
}

// RefResult is the result for a branch.
type RefResult struct {
	TargetBranch string `json:"target_branch"`
	Branch       string `json:"branch" schema:"older=target_branch"`
	OldSHA       string `json:"old_sha" schema:"MaybeID" jsonschema:"its tip before; 40 zeros if it is new; of a failure the tip that a guard met"`
	NewSHA       string `json:"new_sha" schema:"MaybeID" jsonschema:"its tip now"`
	Success      bool   `json:"success"`
	Status       string `json:"status" schema:"enum=ok|no_op|precondition_failed|conflict|not_found|invalid|unauthorized|forbidden|timeout|unavailable|internal"`
	Message      string `json:"message" jsonschema:"empty, or why nothing changed"`
}

// CommitError is the error of a commit.
type CommitError struct {
	Failure
	Result RefResult    `json:"result"`
	Quota  *PassedQuota `json:"quota,omitempty" jsonschema:"with 413, if the write would pass a quota"`
	Edit   *FailedEdit  `json:"edit,omitempty" jsonschema:"with 409, if the text of an edit is not there that often"`
}

// FailedEdit is the edit of a file that could not be made.
type FailedEdit struct {
	Path     string `json:"path" jsonschema:"the path of the file operation"`
	Index    int    `json:"index" jsonschema:"which of its edits, from 0 on"`
	Found    int    `json:"found" jsonschema:"how often old was found"`
	Expected int    `json:"expected" jsonschema:"how often it should have been"`
	Overlaps bool   `json:"overlaps" jsonschema:"whether places of old overlap, so that it is not clear which are meant"`
}

const (
	commitRules = `

- If the target branch exists, the commit goes on top of it, and ` + "`base_branch`" + ` is ignored.
- If it does not exist, it starts from ` + "`base_branch`" + `; the expected tip is then that of the base.
- Without a base a missing target is 404, except in a repository without refs, whose first commit may go to the default branch.
- If the branch moves meanwhile and no tip was expected, the change is applied to the new tip.`

	commitExampleAnswer = `{"commit": {"commit_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50",
  "tree_sha": "cc75ab544f1c1179c840c3db535e6548ed04f205", "target_branch": "main", "pack_bytes": 286},
 "result": {"target_branch": "main", "branch": "main", "old_sha": "0000000000000000000000000000000000000000",
  "new_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50", "success": true, "status": "ok", "message": ""}}`
)

func commitPackCalls() []call {
	answers := []openapi.Answer{
		{Status: http.StatusCreated, Description: "The commit.", Type: CommitAnswer{}, Example: commitExampleAnswer},
		{
			Status:      http.StatusOK,
			Description: "Nothing changed, and `allow_empty` is `false`: no commit was made.", Type: CommitAnswer{},
		},
	}
	errors := func(notFound string) []openapi.Error {
		return []openapi.Error{
			fails(http.StatusNotFound, notFound),
			fails(http.StatusConflict, "The branch has not the expected tip, a name conflicts with another ref."),
		}
	}
	return []call{
		{
			v1: "/repos/commit-pack", path: "/repos/{n}/commit-pack", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "commitPack", Group: writing,
				Summary: "commits files",
				Description: "One line with `metadata`, then lines with `blob_chunk`. A content may have any number of chunks, and chunks of " +
					"different contents may be interleaved. Several files may use one content. What is deleted, moved, copied and edited " +
					"is that of the tree before the commit; then files are written." + commitRules,
				Body: &openapi.Body{
					Lines: []any{CommitPackLine{}, BlobLine{}}, Description: "NDJSON: `metadata` first.",
					Example: `{"metadata": {"target_branch": "main", "commit_message": "Say hello", "author": {"name": "Ada", "email": "ada@example.com"}, "files": [{"path": "hello.txt", "content_id": "1"}]}}
{"blob_chunk": {"content_id": "1", "data": "aGVsbG8K", "eof": true}}
`,
				},
				Answers: answers,
				Errors: []openapi.Error{
					fails(http.StatusNotFound, "The branch, its base, or the repository does not exist."),
					fails(http.StatusConflict, "The branch has not the expected tip, a name conflicts with another ref, "+
						"the text of an edit is not there that often."),
				},
				Error: CommitError{},
			},
		},
		{
			v1: "/repos/diff-commit", path: "/repos/{n}/diff-commit", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "diffCommit", Group: writing,
				Summary: "commits a patch",
				Description: "One line with `metadata`, then lines with `diff_chunk`. The patch has the form that `git apply --cached --binary` " +
					"accepts. It is applied as a whole or not at all." + commitRules,
				Parameters: []openapi.Parameter{{
					Name: "Code-Storage-Agent", In: openapi.InHeader, Description: "With it the answer has `blob_count`, too.",
				}},
				Body: &openapi.Body{
					Lines: []any{DiffCommitLine{}, DiffLine{}}, Description: "NDJSON: `metadata` first.",
					Example: `{"metadata": {"target_branch": "main", "commit_message": "Shout", "author": {"name": "Ada", "email": "ada@example.com"}}}
{"diff_chunk": {"data": "LS0tIGEvaGVsbG8udHh0CisrKyBiL2hlbGxvLnR4dApAQCAtMSArMSBAQAotaGVsbG8KK0hFTExPCg==", "eof": true}}
`,
				},
				Answers: answers,
				Errors: append(errors("The branch, its base, or the repository does not exist."),
					fails(http.StatusBadRequest, "The patch is empty or malformed, or does not apply: the message names the file and the hunk.")),
				Error: CommitError{},
			},
		},
		{
			v1: "/repos/restore-commit", path: "/repos/{n}/restore-commit", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "restoreCommit", Group: writing,
				Summary:     "commits the tree of an earlier commit",
				Description: "The branch must exist. Any commit of the repository will do.",
				Body: &openapi.Body{
					Type: RestoreCommit{},
					Example: `{"metadata": {"target_branch": "topic", "base_ref": "7e0b46a13ca26dd703ee7b47673cd04387447f50",
  "author": {"name": "Ada", "email": "ada@example.com"}}}`,
				},
				Answers: answers, Errors: errors("The branch, the commit, or the repository does not exist."), Error: CommitError{},
			},
		},
	}
}
