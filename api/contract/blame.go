package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// Blame is the commits of a file's lines.
type Blame struct {
	Ref        string      `json:"ref"`
	Path       string      `json:"path"`
	CommitSHA  string      `json:"commit_sha" schema:"ObjectID"`
	Lines      []BlameLine `json:"lines" jsonschema:"without their text"`
	NextCursor string      `json:"next_cursor,omitempty" jsonschema:"cursor of the next part, if lines are left"`
	HasMore    bool        `json:"has_more" schema:"optional" jsonschema:"of a part: whether lines are left"`
}

// BlameLine is a line with the commit that it comes from.
type BlameLine struct {
	LineNumber         int    `json:"line_number" schema:"min=1"`
	OriginalLineNumber int    `json:"original_line_number" schema:"min=1"`
	OriginalPath       string `json:"original_path"`
	PreviousCommitSHA  string `json:"previous_commit_sha,omitempty" schema:"ObjectID" jsonschema:"if the file had an earlier version"`
	CommitSHA          string `json:"commit_sha" schema:"ObjectID"`
	AuthorName         string `json:"author_name"`
	AuthorEmail        string `json:"author_email"`
	AuthorTime         string `json:"author_time" schema:"Time"`
	CommitterName      string `json:"committer_name"`
	CommitterEmail     string `json:"committer_email"`
	CommitterTime      string `json:"committer_time" schema:"Time"`
	Summary            string `json:"summary" jsonschema:"the first line of the message"`
}

func blameCalls() []call {
	parts := limit(100, 1000)
	parts.Description = "After how many versions of the file that had to be compared a part of the blame ends, 1000 at most. " +
		"A part has the lines that are found by then. Without `cursor` and `limit` the answer has all of them."
	return []call{{
		v1: "/repos/blame", path: "/repos/{n}/blame", past: true,
		Operation: openapi.Operation{
			Method: http.MethodGet, ID: "blame", Group: search,
			Summary:     "finds the commit that each line is from",
			Description: "Like `git blame`.",
			Parameters: query(
				openapi.Parameter{Name: "path", Required: true, Description: "The file.", Example: "hello.txt"},
				revision, ephemeral,
				openapi.Parameter{
					Name: "range", Repeated: true,
					Description: "Lines as in `git blame -L`: `3,7`, `3,+5`, `/re/,/re/`, `:function`. At most 16.",
				},
				flag("detect_moves", "Also finds lines that moved within the file, like `-M`."),
				cursor, parts,
			),
			Answers: []openapi.Answer{{
				Status: http.StatusOK, Description: "The lines, streamed.", Type: Blame{},
				Example: `{"ref": "main", "path": "hello.txt", "commit_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326",
 "lines": [{"line_number": 1, "original_line_number": 1, "original_path": "hello.txt",
   "commit_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326", "author_name": "Ada",
   "author_email": "ada@example.com", "author_time": "2026-11-22T09:27:21Z",
   "committer_name": "Ada", "committer_email": "ada@example.com",
   "committer_time": "2026-11-22T09:27:21Z", "summary": "Shout"}]}`,
			}},
			Errors: []openapi.Error{
				fails(http.StatusBadRequest, "A range is invalid or selects no lines, or the path is a folder or a submodule."),
				fails(http.StatusNotFound, "The revision, the path, or the repository does not exist."),
				fails(http.StatusRequestEntityTooLarge, "The file is over 64 MiB, or the request computes for too long."),
			},
		},
	}}
}
