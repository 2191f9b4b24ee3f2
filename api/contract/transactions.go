package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// TransactionLine is the first line of a transaction.
type TransactionLine struct {
	Transaction NewTransaction `json:"transaction" schema:"required"`
}

// NewTransaction is a transaction in one repository.
type NewTransaction struct {
	Operations []Operation `json:"operations" schema:"required,min=1,max=1000" jsonschema:"in order; each sees what those before it made"`
	Rehearsal
}

// OrgTransactionLine is the first line of a transaction in several repositories.
type OrgTransactionLine struct {
	Transaction NewOrgTransaction `json:"transaction" schema:"required"`
}

// NewOrgTransaction is a transaction in several repositories.
type NewOrgTransaction struct {
	Operations []OrgOperation `json:"operations" schema:"required,min=1,max=1000" jsonschema:"in order; each sees what those before it made"`
	Rehearsal
}

// OrgOperation is an operation in one of several repositories.
type OrgOperation struct {
	Repo string         `json:"repo" schema:"required" jsonschema:"the name of the repository; at most 16 different ones"`
	Auth *OperationAuth `json:"auth" jsonschema:"once for each repository; not needed for that of the request's own token"`
	Operation
}

// OperationAuth gives access to a repository.
type OperationAuth struct {
	Token string `json:"token" schema:"required" jsonschema:"a token for the repository, with git:write"`
}

// Operation is one step of a transaction. Exactly one of its fields is given.
type Operation struct {
	Commit  *PackMetadata    `json:"commit" jsonschema:"commits files, whose contents follow: the metadata of commit-pack"`
	Patch   *PatchOperation  `json:"patch" jsonschema:"commits a patch, which follows as a content: the metadata of diff-commit"`
	Merge   *Merge           `json:"merge" jsonschema:"merges: the body of merge"`
	Pick    *CherryPick      `json:"cherry_pick" jsonschema:"repeats commits: the body of cherry-pick"`
	Revert  *Revert          `json:"revert" jsonschema:"takes back commits: the body of revert"`
	Restore *RestoreMetadata `json:"restore" jsonschema:"commits the tree of an earlier commit: the metadata of restore-commit"`
	Branch  *BranchOperation `json:"branch" jsonschema:"creates, renames or deletes a branch"`
	Tag     *TagOperation    `json:"tag" jsonschema:"creates or deletes a tag"`
	Note    *NoteOperation   `json:"note" jsonschema:"adds, extends or deletes a note"`
}

// PatchOperation is a commit of a patch.
type PatchOperation struct {
	NewCommitMetadata
	ContentID string `json:"content_id" schema:"required" jsonschema:"the content that is the patch"`
}

// BranchOperation is a change of a branch.
type BranchOperation struct {
	Action            string `json:"action" schema:"required,enum=create|move|delete" jsonschema:"move gives it new_name; not the default branch"`
	TargetBranch      string `json:"target_branch" schema:"required" jsonschema:"the branch"`
	TargetIsEphemeral bool   `json:"target_is_ephemeral" jsonschema:"its namespace"`
	BaseRef           string `json:"base_ref" jsonschema:"create: a revision that it starts from; wins over base_branch; one of the two is required"`
	BaseBranch        string `json:"base_branch" jsonschema:"create: the branch that it starts from"`
	BaseIsEphemeral   bool   `json:"base_is_ephemeral" jsonschema:"the namespace of the base"`
	Force             bool   `json:"force" jsonschema:"create: may move an existing branch"`
	NewName           string `json:"new_name" jsonschema:"move: its new name, which must be free"`
	ExpectedTargetSHA string `json:"expected_target_sha" schema:"Expected" jsonschema:"the tip that the branch must have; 40 zeros if it must not exist"`
}

// TagOperation is a change of a tag.
type TagOperation struct {
	Action      string `json:"action" schema:"required,enum=create|delete"`
	Name        string `json:"name" schema:"required"`
	Ref         string `json:"ref" jsonschema:"create: the revision that is tagged"`
	Ephemeral   bool   `json:"ephemeral" jsonschema:"the namespace of the tag"`
	ExpectedSHA string `json:"expected_sha" schema:"Expected" jsonschema:"delete: the object that the tag must point to"`
}

// NoteOperation is a change of a note.
type NoteOperation struct {
	ChangeNote
	Note   string `json:"note" jsonschema:"the text, unless it is deleted"`
	Action string `json:"action" schema:"enum=add|append|delete,default=add"`
}

// TransactionAnswer is the answer to a transaction.
type TransactionAnswer struct {
	Results      []OperationResult `json:"results" jsonschema:"of the operations, in their order"`
	PackBytes    int64             `json:"pack_bytes" jsonschema:"stored size of the new objects"`
	Repositories []Transacted      `json:"repositories" jsonschema:"in the order in which operations name them"`
	Rehearsed
}

// Transacted is the position that a repository reached.
type Transacted struct {
	Repo     string `json:"repo"`
	Sequence uint64 `json:"sequence" jsonschema:"the position in its journal"`
}

// OperationResult is the result of an operation, under its name.
type OperationResult struct {
	Commit  *CommitAnswer  `json:"commit,omitempty" jsonschema:"pack_bytes without the contents"`
	Patch   *CommitAnswer  `json:"patch,omitempty"`
	Merge   *Merged        `json:"merge,omitempty"`
	Pick    *Picked        `json:"cherry_pick,omitempty"`
	Revert  *Picked        `json:"revert,omitempty"`
	Restore *CommitAnswer  `json:"restore,omitempty"`
	Branch  *ChangedBranch `json:"branch,omitempty"`
	Tag     *ChangedTag    `json:"tag,omitempty"`
	Note    *ChangedNote   `json:"note,omitempty"`
}

// ChangedBranch is the result for a branch.
type ChangedBranch struct {
	Message           string `json:"message"`
	TargetBranch      string `json:"target_branch" jsonschema:"its name now"`
	TargetIsEphemeral bool   `json:"target_is_ephemeral"`
	CommitSHA         string `json:"commit_sha,omitempty" schema:"ObjectID" jsonschema:"its tip, unless it was deleted"`
}

// ChangedTag is the result for a tag.
type ChangedTag struct {
	Name    string `json:"name"`
	SHA     string `json:"sha,omitempty" schema:"ObjectID" jsonschema:"what it points to, unless it was deleted"`
	Message string `json:"message"`
}

// OperationFailure is the error of a transaction. The operation failed as its own call would.
type OperationFailure struct {
	Failure
	Operation     *int         `json:"operation,omitempty" jsonschema:"the index of the operation that failed, if one did"`
	ConflictType  string       `json:"conflict_type,omitempty" schema:"enum=merge_conflict|empty|target_moved"`
	ConflictPaths []string     `json:"conflict_paths" schema:"optional" jsonschema:"sorted; empty but for merge_conflict"`
	CommitIndex   int          `json:"commit_index" schema:"optional" jsonschema:"of a cherry-pick or a revert, which of commits it was"`
	CommitSHA     string       `json:"commit_sha,omitempty" schema:"ObjectID" jsonschema:"that commit"`
	MergeBaseSHA  string       `json:"merge_base_sha,omitempty" schema:"ObjectID"`
	Quota         *PassedQuota `json:"quota,omitempty" jsonschema:"with 413, if the write would pass a quota"`
}

func transactionCalls() []call {
	const rules = "All refs move in one transaction, or none. One line with `transaction`, then lines with `blob_chunk` " +
		"for the contents of all commits and patches; a `content_id` belongs to one operation. A guard speaks of what its " +
		"operation finds. The first operation that fails is named by `operation`, with the status and the message of its own call."
	errors := []openapi.Error{
		fails(http.StatusNotFound, "What an operation names, or a repository, does not exist."),
		fails(http.StatusConflict, "An operation conflicts, or met another tip than it expected."),
		fails(http.StatusPreconditionFailed, "`ff_only` cannot fast-forward, or the histories are unrelated."),
		fails(http.StatusBadGateway, "Stored objects that a merge needs are damaged or missing."),
	}
	answer := func(repositories string) []openapi.Answer {
		return []openapi.Answer{{
			Status: http.StatusOK, Description: "The results.", Type: TransactionAnswer{},
			Example: `{"results": [{"branch": {"message": "branch created", "target_branch": "topic", "target_is_ephemeral": false,
   "commit_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50"}}], "pack_bytes": 0, "repositories": ` + repositories + `}`,
		}}
	}
	return []call{
		{
			v1: "/repos/transactions", path: "/repos/{n}/transactions", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "transaction", Group: writing,
				Summary:     "makes several writes as one",
				Description: rules,
				Body: &openapi.Body{
					Lines: []any{TransactionLine{}, BlobLine{}}, Description: "NDJSON: `transaction` first.",
					Example: `{"transaction": {"operations": [{"branch": {"action": "create", "target_branch": "topic", "base_ref": "main"}}]}}
`,
				},
				Answers: answer(`[{"repo": "demo", "sequence": 4}]`), Errors: errors, Error: OperationFailure{},
			},
		},
		{
			v1: "/transactions", path: "/transactions", org: true, writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "orgTransaction", Group: writing,
				Summary: "makes writes in up to 16 repositories as one",
				Description: rules + " Nobody sees what it did to one of the repositories without what it did to the others. Each " +
					"repository needs a token with `git:write`: `auth` of one of its operations, or that of the request.",
				Body: &openapi.Body{
					Lines: []any{OrgTransactionLine{}, BlobLine{}}, Description: "NDJSON: `transaction` first.",
					Example: `{"transaction": {"operations": [{"repo": "demo", "auth": {"token": "<token>"}, "branch": {"action": "create", "target_branch": "topic", "base_ref": "main"}}]}}
`,
				},
				Answers: answer(`[{"repo": "demo", "sequence": 4}]`), Errors: errors, Error: OperationFailure{},
			},
		},
	}
}
