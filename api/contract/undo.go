package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// Undo is the body of an undo.
type Undo struct {
	To       string   `json:"to" jsonschema:"the moment whose refs come back: a time (RFC 3339), or seq: and a position of the journal; this or sequence is required"`
	Sequence uint64   `json:"sequence" schema:"min=1" jsonschema:"the one transaction that is taken back"`
	Refs     []string `json:"refs" jsonschema:"only refs that match one of these patterns, which are those of ref policies; otherwise those of the main namespace, and all of the one transaction"`
	Force    bool     `json:"force" jsonschema:"with sequence: also refs that have moved since"`
	Rehearsal
}

// Undone is the answer to an undo.
type Undone struct {
	ToSequence uint64      `json:"to_sequence,omitempty" jsonschema:"with to: the position whose refs are there again"`
	Refs       []UndoneRef `json:"refs" jsonschema:"what has another value now"`
	Unmatched  []string    `json:"unmatched,omitempty" jsonschema:"the first 100 patterns of the request that match no ref which has changed since, or in that transaction"`
	Elsewhere  []Position  `json:"elsewhere,omitempty" jsonschema:"with sequence: where else that transaction changed refs, which stays as it is"`
	Rehearsed
}

// UndoneRef is a ref that was given a former value.
type UndoneRef struct {
	Ref    string `json:"ref" jsonschema:"the stored refname"`
	Before string `json:"before" schema:"ObjectID" jsonschema:"40 zeros for no ref"`
	After  string `json:"after" schema:"ObjectID" jsonschema:"the former value; 40 zeros for no ref"`
}

// MovedRefs is the error of an undo of refs that have moved since.
type MovedRefs struct {
	Failure
	Moved      []MovedRef `json:"moved,omitempty" jsonschema:"the first 100 refs that have moved since"`
	MovedCount int        `json:"moved_count,omitempty" jsonschema:"how many have"`
}

// MovedRef is a ref that is not where a transaction has left it.
type MovedRef struct {
	Ref      string `json:"ref"`
	Expected string `json:"expected" schema:"ObjectID"`
	Actual   string `json:"actual" schema:"ObjectID"`
}

func undoCalls() []call {
	return []call{{
		v1: "/repos/undo", path: "/repos/{n}/undo", writes: true,
		Operation: openapi.Operation{
			Method: http.MethodPost, ID: "undo", Group: branchesAndTags,
			Summary: "gives refs former values, or takes a transaction back",
			Description: "In one transaction, which is an entry of the journal and can be undone, too. The policies bind it as they bind a push. " +
				"The answer lists each ref with its old and its new value.",
			Body: &openapi.Body{Type: Undo{}, Description: "`to` or `sequence`.", Example: `{"to": "seq:2"}`},
			Answers: []openapi.Answer{{
				Status: http.StatusOK, Description: "What has changed.", Type: Undone{},
				Example: `{"to_sequence": 2, "refs": [{"ref": "refs/heads/main",
  "before": "7e0b46a13ca26dd703ee7b47673cd04387447f50", "after": "0a1d5b4b3f6a8c7e9d2f1e0c4b5a69788796a5b4"}]}`,
			}},
			Errors: []openapi.Error{
				{
					Status: http.StatusConflict, Type: MovedRefs{},
					Description: "A ref has moved since the transaction; the default branch would be deleted; a name conflicts with another ref.",
				},
				fails(http.StatusGone, "The journal, or the objects, of that moment are not kept any more."),
			},
		},
	}}
}
