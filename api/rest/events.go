package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"packhorse/api/auth"
	"packhorse/api/code"
	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/refs"
)

// eventsWaitMax bounds how long a request waits for the next event: docs/invariants.md 42.
const eventsWaitMax = time.Minute

// eventJSON is one change of one ref. The name is the stored one, with its namespace; an ID of
// zeros stands for "absent".
type eventJSON struct {
	Sequence uint64 `json:"sequence"`
	Index    uint32 `json:"index"`
	Ref      string `json:"ref"`
	Before   string `json:"before"`
	After    string `json:"after"`
	Actor    string `json:"actor"`
	Time     string `json:"time"`
	Cause    string `json:"cause"`

	Elsewhere []positionJSON `json:"elsewhere,omitempty"`
}

// positionJSON is a transaction in the journal of a repository.
type positionJSON struct {
	RepoID   string `json:"repo_id"`
	Sequence uint64 `json:"sequence"`
}

func positions(of []refs.Position) []positionJSON {
	told := make([]positionJSON, 0, len(of))
	for _, p := range of {
		told = append(told, positionJSON{p.Repo.String(), p.Sequence})
	}
	return told
}

// Events answers GET /repos/events: a page of the journal, after a wait if the page is empty, or
// all of it from there on as server-sent events.
func (d *Door) Events(x exchange.Exchange, grant *auth.Grant) error {
	if wantsEventStream(x) {
		return d.streamJournal(x, grant)
	}
	request, wait, err := readEventsQuery(x)
	if err != nil {
		return err
	}
	repo, err := d.open(x, grant)
	if err != nil {
		return err
	}
	page, err := repo.Events(x.Context(), request)
	if err == nil && wait > 0 {
		page, err = follow(x, wait, page,
			func(p refs.Page) bool { return len(p.Entries) == 0 },
			func(ctx context.Context, last refs.Page) error { return repo.Await(ctx, last.Next+1) },
			func(ctx context.Context, last refs.Page) (refs.Page, error) {
				return repo.Events(ctx, engine.EventsRequest{After: last.Next, Limit: request.Limit})
			})
	}
	if err != nil {
		return err
	}
	list := struct {
		Events    []eventJSON `json:"events"`
		NextAfter uint64      `json:"next_after"`
		HasMore   bool        `json:"has_more"`
	}{Events: make([]eventJSON, 0, len(page.Entries)), NextAfter: page.Next, HasMore: page.More}
	for i := range page.Entries {
		list.Events = append(list.Events, eventOf(&page.Entries[i]))
	}
	return answer(x, http.StatusOK, list)
}

func readEventsQuery(x exchange.Exchange) (engine.EventsRequest, time.Duration, error) {
	limit, err := limitOf(x, limitDefault, limitMax)
	if err != nil {
		return engine.EventsRequest{}, 0, err
	}
	after, err := countOf(x, "after")
	if err != nil {
		return engine.EventsRequest{}, 0, err
	}
	seconds, err := countOf(x, "wait")
	return engine.EventsRequest{After: after, Limit: limit}, waitOf(seconds), err
}

func waitOf(seconds uint64) time.Duration {
	return time.Duration(min(seconds, uint64(eventsWaitMax/time.Second))) * time.Second
}

// countOf reads a query parameter that is a number from 0 on; 0 if it is absent.
func countOf(x exchange.Exchange, name string) (uint64, error) {
	text := x.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	count, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badRequest("%s: expected a number from 0 on, got %.40q", name, text)
	}
	return count, nil
}

// follow waits until an event follows an empty page and returns the new page, or the last one when
// the time is over or the server stops. await returns when a page behind another one may have an
// event, and read reads that page.
func follow[P any](
	x exchange.Exchange, wait time.Duration, page P, isEmpty func(P) bool,
	await func(ctx context.Context, last P) error, read func(ctx context.Context, last P) (P, error),
) (P, error) {
	waiting, stop := context.WithTimeout(x.Context(), wait)
	defer stop()
	defer context.AfterFunc(x.Serving(), stop)()
	for isEmpty(page) {
		err := await(waiting, page)
		if waiting.Err() != nil {
			return page, x.Context().Err()
		}
		if err != nil {
			return page, err
		}
		if page, err = read(x.Context(), page); err != nil {
			return page, err
		}
	}
	return page, nil
}

func eventOf(entry *refs.Entry) eventJSON {
	return eventJSON{
		Sequence: entry.Sequence,
		Index:    entry.Index,
		Ref:      entry.Ref,
		Before:   entry.Before.String(),
		After:    entry.After.String(),
		Actor:    entry.Actor,
		Time:     timestamp(entry.Time),
		Cause:    entry.Cause,

		Elsewhere: positions(entry.Elsewhere),
	}
}

// streamJournal answers with the journal as server-sent events.
func (d *Door) streamJournal(x exchange.Exchange, grant *auth.Grant) error {
	text, name := positionOf(x, "after")
	var after refs.JournalCursor
	if text != "" && text != latest {
		var err error
		if after, err = refs.ParseJournalCursor(text); err != nil {
			return malformed(code.InvalidCursor,
				"%s: expected the id of an event, a number from 0 on, or %q, got %.40q", name, latest, text)
		}
	}
	repo, err := d.open(x, grant)
	if err != nil {
		return err
	}
	if text == latest {
		if after.Sequence, err = repo.Sequence(x.Context()); err != nil {
			return err
		}
	}
	return d.streamEvents(x, grant, &journalStream{repo: repo, at: after})
}

// journalStream is the journal of a repository as an [eventStream].
type journalStream struct {
	repo *engine.Repository
	at   refs.JournalCursor
}

func (s *journalStream) read(ctx context.Context, limit int) (events []sentEvent, more bool, err error) {
	page, err := s.repo.EventsBehind(ctx, s.at, limit)
	if err != nil {
		return nil, false, err
	}
	for i := range page.Events {
		event := &page.Events[i]
		data, err := json.Marshal(eventOf(&event.Entry))
		if err != nil {
			return nil, false, err
		}
		events = append(events, sentEvent{id: event.Cursor.String(), name: eventRef, data: data})
	}
	s.at = page.Next
	return events, page.More, nil
}

func (s *journalStream) await(ctx context.Context) error {
	return s.repo.Await(ctx, s.at.Sequence+1)
}
