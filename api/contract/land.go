package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// Land is the body of land.
type Land struct {
	TargetBranch      string       `json:"target_branch" schema:"required" jsonschema:"the branch that moves; it must exist"`
	TargetIsEphemeral bool         `json:"target_is_ephemeral" jsonschema:"its namespace"`
	Sources           []LandSource `json:"sources" schema:"required,min=1,max=1000" jsonschema:"merged in this order"`
	ExpectedTargetSHA string       `json:"expected_target_sha" schema:"Expected" jsonschema:"the tip that the target must have; 409 if it has another one"`
	StopOnConflict    bool         `json:"stop_on_conflict" jsonschema:"leaves what follows a source that conflicts"`
	Author            Person       `json:"author" schema:"required"`
	Committer         *Person      `json:"committer" jsonschema:"the author by default"`
	Rehearsal
}

// LandSource is what is merged.
type LandSource struct {
	Ref         string `json:"ref" schema:"required" jsonschema:"a branch, or another revision"`
	IsEphemeral bool   `json:"is_ephemeral" jsonschema:"its namespace"`
	Message     string `json:"message" jsonschema:"of the commit; says what is merged into what by default"`
	Squash      bool   `json:"squash" jsonschema:"makes one commit with the target as its only parent"`
}

// LandAnswer is the answer to land.
type LandAnswer struct {
	CommitSHA string       `json:"commit_sha" schema:"ObjectID" jsonschema:"the target's tip now"`
	TreeSHA   string       `json:"tree_sha" schema:"ObjectID"`
	Target    MergedTarget `json:"target"`
	Sources   []Landed     `json:"sources" jsonschema:"one for each source of the request"`
	Rehearsed
}

// Landed is what became of a source.
type Landed struct {
	Ref           string   `json:"ref"`
	SHA           string   `json:"sha" schema:"ObjectID" jsonschema:"the commit that it named"`
	Result        string   `json:"result" schema:"enum=merge_commit|squash|no_op|conflict|unrelated|skipped"`
	Code          string   `json:"code,omitempty" schema:"ErrorCode" jsonschema:"of conflict and unrelated"`
	CommitSHA     string   `json:"commit_sha,omitempty" schema:"ObjectID" jsonschema:"of merge_commit and squash"`
	ConflictPaths []string `json:"conflict_paths,omitempty" jsonschema:"of a conflict, sorted"`
	Clashes       []Clash  `json:"clashes,omitempty" jsonschema:"with what it conflicts, at most 16"`
}

// Clash is what a source conflicts with.
type Clash struct {
	With      string   `json:"with" schema:"enum=target|source" jsonschema:"the target as it was, or a source that landed before"`
	Index     *int     `json:"index,omitempty" jsonschema:"which of sources, from 0 on"`
	Ref       string   `json:"ref,omitempty" jsonschema:"its ref"`
	CommitSHA string   `json:"commit_sha,omitempty" schema:"ObjectID" jsonschema:"what that source came to; or the newest commit of the target that changed one of the paths, and that the source does not hold, if one was found"`
	Paths     []string `json:"paths" jsonschema:"that began to conflict with it"`
}

func landCalls() []call {
	return []call{{
		v1: "/repos/land", path: "/repos/{n}/land", writes: true,
		Operation: openapi.Operation{
			Method: http.MethodPost, ID: "land", Group: merging,
			Summary: "merges several branches into one",
			Description: "Merges the sources in order, each on top of those before it, in one transaction. A source that conflicts is left " +
				"out, and the answer names with what it conflicts. If the target moves meanwhile and no tip was expected, all are merged again.",
			Body: &openapi.Body{
				Type: Land{},
				Example: `{"target_branch": "main", "sources": [{"ref": "topic"}, {"ref": "quiet", "squash": true}],
  "author": {"name": "Ada", "email": "ada@example.com"}}`,
			},
			Answers: []openapi.Answer{{
				Status: http.StatusOK, Description: "What became of each source.", Type: LandAnswer{},
				Example: `{"commit_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326",
 "tree_sha": "378eaa11b3fa985c3e48b6ec2e7264d7dc2e3978",
 "target": {"branch": "main", "ephemeral": false, "old_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50",
  "new_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326"},
 "sources": [{"ref": "topic", "sha": "4ba9c00da72379b9be872bc6c14c46f1c21443c7", "result": "merge_commit",
   "commit_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326"},
  {"ref": "quiet", "sha": "d4b2e1cf2f1e306e2b8b7f6d5c4b3a292817061f", "result": "conflict",
   "code": "merge_conflict",
   "conflict_paths": ["hello.txt"],
   "clashes": [{"with": "source", "index": 0, "ref": "topic",
    "commit_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326", "paths": ["hello.txt"]}]}]}`,
			}},
			Errors: []openapi.Error{
				fails(http.StatusBadRequest, "A field is missing or malformed."),
				fails(http.StatusNotFound, "The branch, a source, or the repository does not exist."),
				{
					Status: http.StatusConflict, Description: "The target has not the expected tip.", Type: MergeConflict{},
				},
				{
					Status: http.StatusRequestEntityTooLarge, Type: QuotaFailure{},
					Description: "The merges make too many bytes, compare too many paths, compute for too long, or would pass a quota.",
				},
				fails(http.StatusBadGateway, "Stored objects that a merge needs are damaged or missing."),
			},
		},
	}}
}
