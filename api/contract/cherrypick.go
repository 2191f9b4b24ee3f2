package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// PickedCommits has the fields of cherry-pick and revert.
type PickedCommits struct {
	Commits           []string         `json:"commits" schema:"required,min=1,max=1000" jsonschema:"revisions, done in this order"`
	SourceIsEphemeral bool             `json:"source_is_ephemeral" jsonschema:"the namespace of their names"`
	TargetBranch      string           `json:"target_branch" schema:"required" jsonschema:"the branch that moves; it must exist"`
	TargetIsEphemeral bool             `json:"target_is_ephemeral" jsonschema:"its namespace"`
	ExpectedTargetSHA string           `json:"expected_target_sha" schema:"Expected" jsonschema:"the tip that the target must have; 409 if it has another one"`
	Mainline          int              `json:"mainline" schema:"min=1" jsonschema:"the number of the parent with which merges are compared; without it a merge is 400"`
	Empty             string           `json:"empty" schema:"enum=stop|drop|keep,default=stop" jsonschema:"what becomes of a commit that changes nothing: 409, left out, or an empty commit"`
	Resolutions       []PickResolution `json:"resolutions" jsonschema:"what becomes of paths that conflict"`
	Rehearsal
}

// PickResolution is a resolution for one of the commits.
type PickResolution struct {
	Resolution
	CommitIndex int `json:"commit_index" schema:"min=0" jsonschema:"which of commits, from 0 on; 0 by default"`
}

// CherryPick is the body of cherry-pick.
type CherryPick struct {
	PickedCommits
	MessageLine bool    `json:"message_line" jsonschema:"adds the line to the message that names the commit, as git cherry-pick -x"`
	Author      *Person `json:"author" jsonschema:"the committer, if none is named; a commit keeps its author"`
	Committer   *Person `json:"committer" jsonschema:"required without author"`
}

// Revert is the body of revert.
type Revert struct {
	PickedCommits
	Author    *Person `json:"author" schema:"required"`
	Committer *Person `json:"committer" jsonschema:"the author by default"`
}

// Picked is the answer to cherry-pick and revert.
type Picked struct {
	Result    string         `json:"result" schema:"enum=committed|no_op" jsonschema:"no_op if every commit was left out"`
	CommitSHA string         `json:"commit_sha" schema:"ObjectID" jsonschema:"the target's tip now"`
	TreeSHA   string         `json:"tree_sha" schema:"ObjectID"`
	Target    MergedTarget   `json:"target"`
	Commits   []PickedCommit `json:"commits" jsonschema:"one for each commit of the request"`
	Rehearsed
}

// PickedCommit is a commit that was picked.
type PickedCommit struct {
	SourceSHA string `json:"source_sha" schema:"ObjectID"`
	CommitSHA string `json:"commit_sha,omitempty" schema:"ObjectID" jsonschema:"what became of it; without it, it was left out"`
}

// PickConflict is the error of a commit that could not be picked, and of a target that has moved.
type PickConflict struct {
	Failure
	ConflictType      string   `json:"conflict_type,omitempty" schema:"enum=merge_conflict|empty|target_moved|no_such_conflict"`
	ConflictPaths     []string `json:"conflict_paths" schema:"optional" jsonschema:"sorted; empty but for merge_conflict"`
	CommitIndex       int      `json:"commit_index" schema:"optional" jsonschema:"which of commits it was, from 0 on"`
	CommitSHA         string   `json:"commit_sha,omitempty" schema:"ObjectID" jsonschema:"the commit"`
	UnresolvablePaths []string `json:"unresolvable_paths,omitempty" jsonschema:"those of conflict_paths that resolutions cannot name"`
}

func pickCalls() []call {
	answer := func(example string) []openapi.Answer {
		return []openapi.Answer{{
			Status: http.StatusOK, Description: "Done, or nothing to do.", Type: Picked{}, Example: example,
		}}
	}
	errors := func(example string) []openapi.Error {
		return []openapi.Error{
			fails(http.StatusBadRequest, "A field is missing or malformed, or a commit is a merge and `mainline` does not fit it."),
			fails(http.StatusNotFound, "The branch, a commit, or the repository does not exist."),
			{
				Status:      http.StatusConflict,
				Description: "A commit conflicts, or would change nothing, the target has not the expected tip.",
				Type:        PickConflict{}, Example: example,
			},
			{
				Status: http.StatusRequestEntityTooLarge, Type: QuotaFailure{},
				Description: "It makes too many bytes, compares too many paths, computes for too long, or would pass a quota.",
			},
			fails(http.StatusBadGateway, "Stored objects that it needs are damaged or missing."),
		}
	}
	return []call{
		{
			v1: "/repos/cherry-pick", path: "/repos/{n}/cherry-pick", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "cherryPick", Group: merging,
				Summary: "repeats commits on a branch",
				Description: "Makes of each commit what `git cherry-pick` makes of it, one on top of the other, in one transaction: all of them, " +
					"or none. If the target moves meanwhile and no tip was expected, it is done again on the new tip.",
				Body: &openapi.Body{
					Type: CherryPick{},
					Example: `{"commits": ["topic"], "target_branch": "main", "message_line": true,
  "committer": {"name": "Ada", "email": "ada@example.com"}}`,
				},
				Answers: answer(`{"result": "committed", "commit_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326",
 "tree_sha": "378eaa11b3fa985c3e48b6ec2e7264d7dc2e3978",
 "target": {"branch": "main", "ephemeral": false, "old_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50",
  "new_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326"},
 "commits": [{"source_sha": "4ba9c00da72379b9be872bc6c14c46f1c21443c7",
  "commit_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326"}]}`),
				Errors: errors(`{"error": "commits[0], 4ba9c00da72379b9be872bc6c14c46f1c21443c7, conflicts with the target",
 "code": "merge_conflict", "conflict_type": "merge_conflict", "conflict_paths": ["hello.txt"], "commit_index": 0,
 "commit_sha": "4ba9c00da72379b9be872bc6c14c46f1c21443c7"}`),
			},
		},
		{
			v1: "/repos/revert", path: "/repos/{n}/revert", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "revert", Group: merging,
				Summary: "takes back commits on a branch",
				Description: "Makes for each commit what `git revert` makes for it, one on top of the other, in one transaction: all of them, " +
					"or none. If the target moves meanwhile and no tip was expected, it is done again on the new tip.",
				Body: &openapi.Body{
					Type: Revert{},
					Example: `{"commits": ["main"], "target_branch": "main",
  "author": {"name": "Ada", "email": "ada@example.com"}}`,
				},
				Answers: answer(`{"result": "committed", "commit_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50",
 "tree_sha": "cc75ab544f1c1179c840c3db535e6548ed04f205",
 "target": {"branch": "main", "ephemeral": false, "old_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326",
  "new_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50"},
 "commits": [{"source_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326",
  "commit_sha": "7e0b46a13ca26dd703ee7b47673cd04387447f50"}]}`),
				Errors: errors(`{"error": "commits[0], 25a01281fc66fb88e1f29f4da2631716a2e58326, conflicts with the target",
 "code": "merge_conflict", "conflict_type": "merge_conflict", "conflict_paths": ["hello.txt"], "commit_index": 0,
 "commit_sha": "25a01281fc66fb88e1f29f4da2631716a2e58326"}`),
			},
		},
	}
}
