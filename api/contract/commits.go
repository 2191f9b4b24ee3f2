package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// CommitList is a page of the history.
type CommitList struct {
	Commits []Commit `json:"commits"`
	Page
}

// Commit is a commit.
type Commit struct {
	SHA            string   `json:"sha" schema:"ObjectID"`
	ParentSHAs     []string `json:"parent_shas" schema:"ObjectID" jsonschema:"in git's order; empty for a root"`
	Message        string   `json:"message" jsonschema:"without the line ends at its end"`
	AuthorName     string   `json:"author_name"`
	AuthorEmail    string   `json:"author_email"`
	CommitterName  string   `json:"committer_name"`
	CommitterEmail string   `json:"committer_email"`
	Date           string   `json:"date" schema:"Time" jsonschema:"the committer's"`
}

// OneCommit is the answer for one commit.
type OneCommit struct {
	Commit SignedCommit `json:"commit"`
}

// SignedCommit is a commit with its signature, if it has one.
type SignedCommit struct {
	Commit
	Signature string `json:"signature,omitempty" jsonschema:"the armored header gpgsig"`
	Payload   string `json:"payload,omitempty" jsonschema:"the exact bytes that were signed, unless they are not UTF-8"`
}

const commitExample = `{"sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50", "parent_shas": [],
  "message": "Say hello", "author_name": "Ada", "author_email": "ada@example.com",
  "committer_name": "Ada", "committer_email": "ada@example.com", "date": "2026-11-22T09:27:21Z"}`

func commitCalls() []call {
	return []call{
		{
			v1: "/repos/commits", path: "/repos/{n}/commits", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "commits", Group: commits,
				Summary:     "lists the commits of a branch",
				Description: "By commit date, newest first, as `git log` does. All pages start from the same tip, whatever is pushed meanwhile.",
				Parameters: query(
					openapi.Parameter{
						Name: "ref", Older: "branch", Example: "main",
						Description: "A branch, or any other revision; the default branch without it.",
					},
					ephemeral,
					openapi.Parameter{
						Name: "path", Description: "Only commits that changed it, with `git log`'s history simplification.", Example: "src",
					},
					cursor, limit(20, 100),
				),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "A page of commits.", Type: CommitList{},
					Example: `{"commits": [` + commitExample + `], "has_more": false}`,
				}},
				Errors: []openapi.Error{fails(http.StatusNotFound, "The branch, or the repository, does not exist.")},
			},
		},
		{
			v1: "/repos/commit", path: "/repos/{n}/commit", past: true,
			Operation: openapi.Operation{
				Method: http.MethodGet, ID: "commit", Group: commits,
				Summary: "reads a commit with its signature",
				Parameters: query(openapi.Parameter{
					Name: "ref", Older: "sha", Required: true, Example: "7e0b46a13ca26dd703ee7b47673cd04387447f50",
					Description: "A commit id, a unique prefix of at least 7 digits, or another revision.",
				}, ephemeral),
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The commit.", Type: OneCommit{}, Example: `{"commit": ` + commitExample + `}`,
				}},
				Errors: []openapi.Error{fails(http.StatusNotFound, "The commit, or the repository, does not exist.")},
			},
		},
	}
}
