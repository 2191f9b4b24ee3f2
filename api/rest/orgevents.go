package rest

import (
	"context"
	"encoding/json"
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/refs"
)

// orgEventJSON is one event of an organization. A creation and a deletion of a repository, and its
// return, change no ref.
type orgEventJSON struct {
	Cursor   string  `json:"cursor"`
	Event    string  `json:"event"`
	RepoID   string  `json:"repo_id"`
	RepoName string  `json:"repo_name"`
	Sequence uint64  `json:"sequence"`
	Index    *uint32 `json:"index,omitempty"`
	Ref      string  `json:"ref,omitempty"`
	Before   string  `json:"before,omitempty"`
	After    string  `json:"after,omitempty"`
	Actor    string  `json:"actor"`
	Time     string  `json:"time"`
	Cause    string  `json:"cause"`

	Elsewhere []positionJSON `json:"elsewhere,omitempty"`
}

// Names of events.
const (
	eventRef     = "ref"
	eventCreated = "create"
	eventDeleted = "delete"
	eventRevived = "undelete"
)

// OrgEvents answers GET /events: a page of the organization's feed, after a wait if the page is
// empty, or all of it from there on as server-sent events.
func (d *Door) OrgEvents(x exchange.Exchange, grant *auth.Grant) error {
	limit, err := limitOf(x, limitDefault, limitMax)
	if err != nil {
		return err
	}
	seconds, err := countOf(x, "wait")
	if err != nil {
		return err
	}
	after, err := d.orgCursor(x, grant)
	if err != nil {
		return err
	}
	if wantsEventStream(x) {
		return d.streamEvents(x, grant, &orgStream{door: d, org: grant.Org, at: after})
	}
	page, err := d.host.OrgEvents(x.Context(), grant.Org, after, limit)
	if wait := waitOf(seconds); err == nil && wait > 0 {
		page, err = follow(x, wait, page,
			func(p refs.FeedPage) bool { return len(p.Events) == 0 },
			func(ctx context.Context, last refs.FeedPage) error {
				return d.host.AwaitOrgEvents(ctx, grant.Org, last.Next)
			},
			func(ctx context.Context, last refs.FeedPage) (refs.FeedPage, error) {
				return d.host.OrgEvents(ctx, grant.Org, last.Next, limit)
			})
	}
	if err != nil {
		return err
	}
	list := struct {
		Events     []orgEventJSON `json:"events"`
		NextCursor string         `json:"next_cursor"`
		HasMore    bool           `json:"has_more"`
	}{Events: make([]orgEventJSON, 0, len(page.Events)), NextCursor: page.Next.String(), HasMore: page.More}
	for i := range page.Events {
		list.Events = append(list.Events, orgEventOf(&page.Events[i]))
	}
	return answer(x, http.StatusOK, list)
}

// orgCursor reads where the request goes on.
func (d *Door) orgCursor(x exchange.Exchange, grant *auth.Grant) (refs.FeedCursor, error) {
	text, name := positionOf(x, "cursor")
	if text == latest {
		return d.host.OrgEventsEnd(x.Context(), grant.Org)
	}
	cursor, err := refs.ParseFeedCursor(text)
	if err != nil {
		return cursor, malformed(code.InvalidCursor,
			"%s: expected the cursor of an event, next_cursor of a page, or %q, got %.40q", name, latest, text)
	}
	return cursor, nil
}

func orgEventOf(event *refs.FeedEvent) orgEventJSON {
	told := orgEventJSON{
		Cursor:   event.Cursor.String(),
		Event:    eventRef,
		RepoID:   event.Repo.String(),
		RepoName: event.Name,
		Sequence: event.Sequence,
		Actor:    event.Actor,
		Time:     timestamp(event.Time),
		Cause:    event.Cause,

		Elsewhere: positions(event.Elsewhere),
	}
	switch event.Kind {
	case refs.FeedCreated:
		told.Event = eventCreated
	case refs.FeedDeleted:
		told.Event = eventDeleted
	case refs.FeedRevived:
		told.Event = eventRevived
	default:
		told.Index, told.Ref = &event.Index, event.Ref
		told.Before, told.After = event.Before.String(), event.After.String()
	}
	return told
}

// orgStream is the feed of an organization as an [eventStream].
type orgStream struct {
	door *Door
	org  string
	at   refs.FeedCursor
}

func (s *orgStream) read(ctx context.Context, limit int) (events []sentEvent, more bool, err error) {
	page, err := s.door.host.OrgEvents(ctx, s.org, s.at, limit)
	if err != nil {
		return nil, false, err
	}
	for i := range page.Events {
		told := orgEventOf(&page.Events[i])
		data, err := json.Marshal(told)
		if err != nil {
			return nil, false, err
		}
		events = append(events, sentEvent{id: told.Cursor, name: told.Event, data: data})
	}
	s.at = page.Next
	return events, page.More, nil
}

func (s *orgStream) await(ctx context.Context) error {
	return s.door.host.AwaitOrgEvents(ctx, s.org, s.at)
}
