package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// BranchList is a page of branches.
type BranchList struct {
	Branches   []ListedBranch `json:"branches"`
	NextCursor string         `json:"next_cursor,omitempty" jsonschema:"cursor of the last branch, also on the last page"`
	HasMore    bool           `json:"has_more"`
}

// ListedBranch is a branch in a listing.
type ListedBranch struct {
	Cursor string `json:"cursor" jsonschema:"to continue after this branch"`
	Branch
}

// Branch is a branch.
type Branch struct {
	Name      string `json:"name"`
	HeadSHA   string `json:"head_sha" schema:"ObjectID"`
	CreatedAt string `json:"created_at" schema:"Time"`
}

// OneBranch is the answer for one branch.
type OneBranch struct {
	Branch Branch `json:"branch"`
}

// CreateBranch is the body of a creation.
type CreateBranch struct {
	TargetBranch      string `json:"target_branch" schema:"required" jsonschema:"the new branch"`
	TargetIsEphemeral bool   `json:"target_is_ephemeral" jsonschema:"its namespace"`
	BaseRef           string `json:"base_ref" jsonschema:"a revision that it starts from; wins over base_branch; one of the two is required"`
	BaseBranch        string `json:"base_branch" jsonschema:"the branch that it starts from"`
	BaseIsEphemeral   bool   `json:"base_is_ephemeral" jsonschema:"the namespace of the base"`
	Force             bool   `json:"force" jsonschema:"may move an existing branch"`
	Rehearsal
}

// CreatedBranch is the answer to a creation.
type CreatedBranch struct {
	Message           string `json:"message"`
	TargetBranch      string `json:"target_branch"`
	TargetIsEphemeral bool   `json:"target_is_ephemeral"`
	CommitSHA         string `json:"commit_sha" schema:"ObjectID"`
	Rehearsed
}

// DeleteBranch is the body of a deletion.
type DeleteBranch struct {
	TargetBranch string `json:"target_branch" schema:"required" jsonschema:"the branch"`
	Name         string `json:"name" schema:"older=target_branch"`
	Ephemeral    bool   `json:"ephemeral" jsonschema:"its namespace"`
	Rehearsal
}

// DeletedBranch is the answer to a deletion.
type DeletedBranch struct {
	TargetBranch string `json:"target_branch"`
	Name         string `json:"name" schema:"older=target_branch"`
	Message      string `json:"message"`
	Ephemeral    bool   `json:"ephemeral"`
	Rehearsed
}

func branchCalls() []call {
	return []call{
		{
			v1: "/repos/branches", path: "/repos/{n}/branches", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "branches", Group: branchesAndTags,
				Summary:     "lists branches",
				Description: "In order of creation.",
				Parameters:  query(ephemeral, cursor, limit(20, 100)),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "A page of branches.", Type: BranchList{},
					Example: `{"branches": [{"cursor": "YgAAAAAAAAACAAAAAA", "name": "main",
   "head_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50",
   "created_at": "2026-11-22T09:27:21.766Z"}], "next_cursor": "YgAAAAAAAAACAAAAAA", "has_more": false}`,
				}},
			},
		},
		{
			v1: "/repos/branch", path: "/repos/{n}/branch", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "branch", Group: branchesAndTags,
				Summary: "describes one branch",
				Parameters: query(
					openapi.Parameter{Name: "name", Required: true, Description: "The branch.", Example: "main"}, ephemeral,
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The branch.", Type: OneBranch{},
					Example: `{"branch": {"name": "main", "head_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50",
  "created_at": "2026-11-22T09:27:21.766Z"}}`,
				}},
				Errors: []openapi.Error{fails(http.StatusNotFound, "The branch, or the repository, does not exist.")},
			},
		},
		{
			v1: "/repos/branches/create", path: "/repos/{n}/branches/create", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "createBranch", Group: branchesAndTags,
				Summary:     "creates a branch",
				Description: "To promote an ephemeral branch, create a branch from it.",
				Body:        &openapi.Body{Type: CreateBranch{}, Example: `{"target_branch": "topic", "base_ref": "main"}`},
				Answers: []openapi.Answer{
					{
						Status: http.StatusCreated, Description: "The branch.", Type: CreatedBranch{},
						Example: `{"message": "branch created", "target_branch": "topic", "target_is_ephemeral": false,
 "commit_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50"}`,
					},
					{Status: http.StatusOK, Description: "The branch was there; `force` moved it.", Type: CreatedBranch{}},
				},
				Errors: []openapi.Error{
					fails(http.StatusNotFound, "The base, or the repository, does not exist."),
					fails(http.StatusConflict, "The branch exists, its name conflicts with another ref."),
				},
			},
		},
		{
			v1: "/repos/branches", path: "/repos/{n}/branches", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodDelete, ID: "deleteBranch", Group: branchesAndTags,
				Summary: "deletes a branch",
				Body:    &openapi.Body{Type: DeleteBranch{}, Example: `{"target_branch": "draft", "ephemeral": true}`},
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "It is deleted.", Type: DeletedBranch{},
					Example: `{"target_branch": "draft", "name": "draft", "message": "branch deleted", "ephemeral": true}`,
				}},
				Errors: []openapi.Error{
					fails(http.StatusNotFound, "The branch, or the repository, does not exist."),
					fails(http.StatusConflict, "It is the default branch."),
				},
			},
		},
	}
}
