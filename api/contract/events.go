package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// EventList is a page of the journal.
type EventList struct {
	Events    []Event `json:"events"`
	NextAfter uint64  `json:"next_after" jsonschema:"after of the next request"`
	HasMore   bool    `json:"has_more" jsonschema:"whether there is more now"`
}

// Event is one change of one ref.
type Event struct {
	Sequence  uint64     `json:"sequence" jsonschema:"the transaction"`
	Index     uint32     `json:"index" jsonschema:"the change within it, from 0"`
	Ref       string     `json:"ref" jsonschema:"the stored refname"`
	Before    string     `json:"before" schema:"ObjectID"`
	After     string     `json:"after" schema:"ObjectID"`
	Actor     string     `json:"actor" jsonschema:"the token's sub; upstream for a sync"`
	Time      string     `json:"time" schema:"Time"`
	Cause     string     `json:"cause" schema:"enum=push|import|commit-pack|diff-commit|restore-commit|merge|cherry-pick|revert|land|branch|tag|delete|note|undo|transaction|fork|snapshot|pull-upstream" jsonschema:"which operation"`
	Elsewhere []Position `json:"elsewhere,omitempty" jsonschema:"where else the transaction is, if it changed several repositories"`
}

// Position is a transaction in the journal of a repository.
type Position struct {
	RepoID   string `json:"repo_id" schema:"RepositoryID"`
	Sequence uint64 `json:"sequence"`
}

// Trimmed is the error for a part of the journal that is gone.
type Trimmed struct {
	Failure
	Oldest uint64 `json:"oldest" jsonschema:"the first position that is left"`
}

const (
	eventStream = "text/event-stream"
	asStream    = "With `Accept: text/event-stream` the answer is a stream of server-sent events that stays open: `id` is the position " +
		"behind an event, and `data` the event as in a page. A comment comes after 15 seconds of silence."
)

var (
	wait = openapi.Parameter{
		Name: "wait", Type: uint64(0), Schema: "default=0",
		Description: "How many seconds to wait if there is nothing yet, 60 at most. Not of a stream.",
	}
	lastEventID = openapi.Parameter{
		Name: "Last-Event-ID", In: openapi.InHeader,
		Description: "Of a stream: go on behind the event with this `id`, whatever the query says.",
	}
)

func eventCalls() []call {
	return []call{{
		v1: "/repos/events", path: "/repos/{n}/events",
		Operation: openapi.Operation{
			Method: http.MethodGet, ID: "events", Group: repositories,
			Summary: "reads the journal of ref changes",
			Description: "Every change of a ref, in all namespaces, in order and without gaps; kept for 90 days. A transaction that moves no " +
				"ref has a position but no event. " + asStream,
			Parameters: append(query(
				openapi.Parameter{
					Name: "after", Schema: "default=0",
					Description: "Return what follows this position, a number. Of a stream also the `id` of an event, or `latest` to leave out the past.",
				},
				openapi.Parameter{
					Name: "limit", Type: 0, Schema: "min=1,default=20",
					Description: "100 at most. The last transaction is returned whole, so there may be more events. Not of a stream.",
				},
				wait,
			), lastEventID),
			Answers: []openapi.Answer{{
				Status: http.StatusOK, Description: "A page of events, or a stream.", Type: EventList{},
				Example: `{"events": [{"sequence": 8, "index": 0, "ref": "refs/tags/v1.0",
   "before": "0000000000000000000000000000000000000000",
   "after": "7e0b46a13ca26dd703ee7b47673cd04387447f50", "actor": "dev",
   "time": "2026-11-22T09:27:21.823Z", "cause": "tag"}], "next_after": 8, "has_more": false}`,
				Also: []openapi.Content{{Media: eventStream, Example: "retry: 1000\n\n" +
					"id: 8\nevent: ref\n" + `data: {"sequence":8,"index":0,"ref":"refs/tags/v1.0",…}` + "\n\n:\n\n"}},
			}},
			Errors: []openapi.Error{
				fails(http.StatusBadRequest, "The journal has not reached `after`, or a parameter is malformed."),
				{Status: http.StatusGone, Description: "That part of the journal is gone.", Type: Trimmed{}},
			},
		},
	}}
}
