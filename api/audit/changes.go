package audit

import (
	"context"
	"sync"
	"time"

	"packhorse/refs"
)

// Changes collects the changes of refs that one request makes. It may be used concurrently.
type Changes struct {
	requestID string

	mu  sync.Mutex
	all []Change // guarded by mu
	// created says that one of them has created its repository.
	created bool // guarded by mu
	ended   bool // guarded by mu
}

type changesKey struct{}

// Collect returns a context in which transactions report to changes, and the changes, which are
// those of the request of that id.
func Collect(ctx context.Context, requestID string) (context.Context, *Changes) {
	c := &Changes{requestID: requestID}
	return context.WithValue(ctx, changesKey{}, c), c
}

// End adds the changes to the record of their request. What the request changes later, in work that
// outlives it, gets a line of its own. A nil Changes has none.
func (c *Changes) End(r *Record) {
	if c == nil {
		return
	}
	c.mu.Lock()
	all := c.all
	r.Created = c.created
	c.all, c.ended = nil, true
	c.mu.Unlock()
	if len(all) == 0 {
		return
	}
	r.Changes = make([]Change, 0, len(all))
	for _, one := range all {
		if one.Repository == r.Repository {
			one.Repository = ""
		}
		if one.Subject == r.Subject {
			one.Subject = ""
		}
		r.Changes = append(r.Changes, one)
	}
}

// add takes the changes of a transaction, and reports whether the request goes on.
func (c *Changes) add(done *refs.Committed) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.created = c.created || done.Created
	for _, change := range changesOf(done) {
		change.Repository, change.Subject = done.Name, done.Actor
		c.all = append(c.all, change)
	}
	return true
}

// changesOf returns the changes of a transaction, without repository and subject.
func changesOf(done *refs.Committed) []Change {
	all := make([]Change, 0, len(done.Updates))
	for i := range done.Updates {
		update := &done.Updates[i]
		all = append(all, Change{Ref: update.Ref, Old: update.Before, New: update.After, Sequence: update.Sequence})
	}
	return all
}

// Committed is [refs.Options.Committed]: it adds a transaction to the request whose context ctx is,
// and writes a line about one that belongs to none, whose action is the cause in the journal.
func (w *Writer) Committed(ctx context.Context, done refs.Committed) {
	record := Record{
		Time: time.Now(), Via: Background, Organization: done.Org, Repository: done.Name, Action: done.Cause,
		Subject: done.Actor,
	}
	if request, ok := ctx.Value(changesKey{}).(*Changes); ok {
		if request.add(&done) {
			return
		}
		record.RequestID = request.requestID
	}
	record.Changes, record.Created = changesOf(&done), done.Created
	w.Write(&record)
}
