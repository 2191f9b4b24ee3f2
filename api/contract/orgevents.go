package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// OrgEventList is a page of the events of an organization.
type OrgEventList struct {
	Events     []OrgEvent `json:"events"`
	NextCursor string     `json:"next_cursor" jsonschema:"cursor of the next request; empty before the first event"`
	HasMore    bool       `json:"has_more" jsonschema:"whether there is more now; a page can be empty nevertheless"`
}

// OrgEvent is one change of one ref, or of a repository itself, which has no index, ref, before and
// after.
type OrgEvent struct {
	Cursor    string     `json:"cursor" jsonschema:"the position behind the event"`
	Event     string     `json:"event" schema:"enum=ref|create|delete|undelete" jsonschema:"all but ref are about the repository"`
	RepoID    string     `json:"repo_id" schema:"RepositoryID"`
	RepoName  string     `json:"repo_name" jsonschema:"its name now; for delete its last name"`
	Sequence  uint64     `json:"sequence" jsonschema:"the transaction"`
	Index     *uint32    `json:"index,omitempty" jsonschema:"the change within it, from 0"`
	Ref       string     `json:"ref,omitempty" jsonschema:"the stored refname"`
	Before    string     `json:"before,omitempty" schema:"ObjectID"`
	After     string     `json:"after,omitempty" schema:"ObjectID"`
	Actor     string     `json:"actor" jsonschema:"the token's sub; upstream for a sync"`
	Time      string     `json:"time" schema:"Time"`
	Cause     string     `json:"cause" jsonschema:"which operation, as in the journal of a repository; also create and undelete"`
	Elsewhere []Position `json:"elsewhere,omitempty" jsonschema:"where else the transaction is, if it changed several repositories"`
}

// FeedGone is the error for a cursor that leads nowhere.
type FeedGone struct {
	Failure
	Oldest string `json:"oldest" jsonschema:"the cursor to go on from; empty for the start"`
}

func orgEventCalls() []call {
	return []call{{
		v1: "/events", path: "/events", org: true,
		Operation: openapi.Operation{
			Method: http.MethodGet, ID: "orgEvents", Group: repositories,
			Summary: "reads the events of all repositories",
			Description: "Every change of a ref, and every creation, deletion and return of a repository, in one order. Nothing is left out, and the " +
				"events of one repository are in the order of its journal. " + asStream,
			Parameters: append(query(
				openapi.Parameter{
					Name:        "cursor",
					Description: "Return what follows it: `cursor` of an event, `next_cursor` of a page, or `latest` to leave out the past.",
				},
				limit(20, 100), wait,
			), lastEventID),
			Answers: []openapi.Answer{{
				Status: http.StatusOK, Description: "A page of events, or a stream.", Type: OrgEventList{},
				Example: `{"events": [{"cursor": "AQAAAAEAAAAAAAAAAf_____Tx1dNEQnafw", "event": "create",
   "repo_id": "01a20294-e355-736f-afa3-411a0ca91fe0", "repo_name": "demo", "sequence": 1,
   "actor": "dev", "time": "2026-11-22T09:27:21.685Z", "cause": "create"}],
 "next_cursor": "AQAAAAEAAAAAAAAAAf_____Tx1dNEQnafw", "has_more": false}`,
				Also: []openapi.Content{{Media: eventStream, Example: "retry: 1000\n\n" +
					"id: AQAAAAEAAAAAAAAAAf_____Tx1dNEQnafw\nevent: create\n" +
					`data: {"cursor":"AQAAAAEAAAAAAAAAAf_____Tx1dNEQnafw","event":"create",…}` + "\n\n"}},
			}},
			Errors: []openapi.Error{
				{
					Status: http.StatusGone, Type: FeedGone{},
					Description: "Events behind the cursor are gone, or it is of another store or organization.",
				},
			},
		},
	}}
}
