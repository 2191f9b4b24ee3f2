package contract

import (
	"net/http"

	"packhorse/api/openapi"
)

// PullUpstream is the body of a request for a sync.
type PullUpstream struct {
	Ref string `json:"ref" jsonschema:"a branch or a full refname; it must be valid, but has no effect"`
	Rehearsal
}

// Message is an answer that says what was done.
type Message struct {
	Message string `json:"message"`
	Rehearsed
}

func detachCalls() []call {
	return []call{
		{
			v1: "/repos/pull-upstream", path: "/repos/{n}/pull-upstream", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodPost, ID: "pullUpstream", Group: upstreams,
				Summary:     "requests a sync with the upstream",
				Description: "Of all branches and tags; it runs in the background.",
				Body:        &openapi.Body{Type: PullUpstream{}, Optional: true, Example: `{}`},
				Answers: []openapi.Answer{{
					Status: http.StatusAccepted, Description: "The sync is under way.", Type: Message{},
					Example: `{"message": "the sync with the upstream is under way"}`,
				}},
				Errors: []openapi.Error{
					fails(http.StatusForbidden, "The token lacks the scope, or its policy has `no-push` or `verify-sig` for any branch or tag."),
					fails(http.StatusConflict, "There is no upstream, the repository is being detached."),
				},
			},
		},
		{
			v1: "/repos/base", path: "/repos/{n}/base", writes: true,
			Operation: openapi.Operation{
				Method: http.MethodDelete, ID: "detach", Group: upstreams,
				Summary:     "detaches the repository from its upstream",
				Description: "A running sync is cancelled. The answer is the same if there is no upstream.",
				Body:        emptyBody,
				Answers: []openapi.Answer{{
					Status: http.StatusOK, Description: "The repository has no upstream.", Type: Message{},
					Example: `{"message": "the repository has no upstream"}`,
				}},
				Errors: []openapi.Error{
					fails(http.StatusConflict, "Another detachment is under way."),
					fails(http.StatusGatewayTimeout, "The sync did not end within 30 seconds; nothing has changed."),
				},
			},
		},
	}
}
