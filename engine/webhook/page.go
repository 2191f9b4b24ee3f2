package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/odb/fair"
	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/refs"
)

// page is the part of a repository's journal that a lane has in memory.
type page struct {
	items []*item
	head  int      // number of settled items at the front
	end   position // the position after the page
}

// next is the first position that has not been dealt with.
func (p *page) next() position {
	if p.head < len(p.items) {
		return p.items[p.head].at
	}
	return p.end
}

// openPages opens the journals of repositories whose turn it is, as many as there is room for.
func (l *lane) openPages(now time.Time) {
	for len(l.open) < lanePages && l.parked < parkedMax && len(l.ready) > 0 && !l.overtaken {
		id := l.ready[0]
		l.ready = l.ready[1:]
		// A panic leaves the other repositories alone, and the events that were sent settled.
		if err := rescue.Do(func() error { return l.openInTurn(id, now) }); err != nil {
			l.ready = append(l.ready, id)
			l.resumeAt = now.Add(storePause)
			l.d.logFailure(l.ctx, "read the journal of "+id.String(), err)
			return
		}
	}
}

// openInTurn opens a page when no other lane does, and it is the organization's turn.
func (l *lane) openInTurn(id refs.RepoID, now time.Time) error {
	release, err := l.d.opening.Acquire(l.ctx, fair.Tenant{Org: l.hook.Org}, 0, 1)
	if err != nil {
		return err
	}
	defer release()
	return l.withRepository(id, func(ctx context.Context, repo *Repository) error {
		return l.openPage(ctx, id, repo, now)
	})
}

// withRepository runs work when it is the turn of a repository and its organization; the repository
// is nil if it has been deleted.
func (l *lane) withRepository(id refs.RepoID, work func(ctx context.Context, repo *Repository) error) error {
	found, err := l.d.Source.Repository(l.ctx, id)
	repo := &found
	if errors.Is(err, refs.ErrRepositoryNotFound) {
		repo, err = nil, nil
	}
	if err != nil {
		return err
	}
	return l.inTurn(found.Name, func(ctx context.Context) error { return work(ctx, repo) })
}

// inTurn runs work about a repository when it is the turn of that and the organization.
func (l *lane) inTurn(repo string, work func(ctx context.Context) error) error {
	return l.d.Turn(l.storing, fair.Tenant{Org: l.hook.Org, Repo: repo}, work)
}

// passed is the time of the last settled event at the front, zero without one. What follows is not
// older.
func (p *page) passed(now time.Time) time.Time {
	if p.head == 0 {
		return time.Time{}
	}
	return p.items[p.head-1].Event.time(now)
}

// readJournal reads a page of a journal from a position on. If there is none it returns where to go
// on: at the end, if the repository has been deleted, or behind what was trimmed, for which it adds
// a dead letter to b.
func (l *lane) readJournal(
	ctx context.Context, b *kv.Batch, id refs.RepoID, repo *Repository, from, end position, now time.Time,
) (events refs.Page, next position, err error) {
	if repo == nil {
		return refs.Page{}, end, nil
	}
	events, err = l.d.Source.Events(ctx, id, from.Sequence-1, pageEvents)
	if errors.Is(err, refs.ErrRepositoryNotFound) {
		return refs.Page{}, end, nil
	}
	if trimmed, is := errors.AsType[*refs.TrimmedError](err); is && trimmed.Oldest > from.Sequence {
		l.lose(b, id, from, trimmed.Oldest, now)
		return refs.Page{}, position{Sequence: trimmed.Oldest}, nil
	}
	return events, position{}, err
}

// openPage opens the page of a repository, which is nil if it has been deleted.
func (l *lane) openPage(ctx context.Context, id refs.RepoID, repo *Repository, now time.Time) error {
	row, found, err := l.d.readStream(ctx, l.id, id)
	if err != nil {
		return err
	}
	if !found {
		delete(l.known, id)
		return nil
	}
	b := l.newBatch()
	events, next, err := l.readJournal(ctx, b, id, repo, row.Next, position{Sequence: row.Last + 1}, now)
	if err != nil {
		return err
	}
	p := &page{end: next}
	if next == (position{}) {
		p.take(events, repo, &row)
	}
	l.open[id] = p
	queues := make(map[*queue]struct{})
	for _, it := range p.items {
		queues[l.enqueue(it, now)] = struct{}{}
	}
	for q := range queues {
		l.storeWaiting(b, q)
	}
	l.advance(ctx, b, id)
	return nil
}

// take makes items of events, from where the stream is to its last transaction, or as many as a
// page holds.
func (p *page) take(events refs.Page, repo *Repository, row *stream) {
	p.end = position{Sequence: row.Last + 1}
	if events.More && events.Next < row.Last {
		p.end = position{Sequence: events.Next + 1}
	}
	for i := range events.Entries {
		entry := &events.Entries[i]
		at := position{entry.Sequence, entry.Index}
		switch {
		case at.compare(row.Next) < 0:
		case at.compare(p.end) >= 0:
			return
		case len(p.items) == pageEvents:
			p.end = at
			return
		default:
			p.items = append(p.items, &item{delivery: delivery{Event: newEvent(repo, entry)}, repo: repo.ID, at: at})
		}
	}
}

// lose leaves a dead letter for events that the journal does not hold any more.
func (l *lane) lose(b *kv.Batch, id refs.RepoID, from position, oldest uint64, now time.Time) {
	it := &item{repo: id, at: from}
	it.Lost, it.Since, it.Died = true, now, now
	it.Event.CustomerID, it.Event.Repository.ID = l.hook.Org, id.String()
	it.Error = fmt.Sprintf("the journal was trimmed: transactions %d to %d are lost", from.Sequence, oldest-1)
	l.store(b, kindDead, it)
	l.d.dead.Add(1)
	l.log.ErrorContext(l.ctx, "webhook: events were lost", "delivery", deliveryID(id, from), "error", it.Error)
}

// advance applies b, with the cursor of a repository moved to where all before it has been dealt
// with. A page that is done is closed.
func (l *lane) advance(ctx context.Context, b *kv.Batch, id refs.RepoID) {
	if l.isLost() {
		return
	}
	p := l.open[id]
	before := position{}
	if p != nil {
		before = p.next()
		for p.head < len(p.items) && p.items[p.head].settled {
			p.head++
		}
	}
	done := p != nil && p.head == len(p.items)
	if p == nil || !done && p.next() == before {
		l.apply(ctx, b) // if the lane ends the work is done again
		return
	}
	since := p.passed(l.d.Clock.Now())
	more, err := l.moveCursor(ctx, b, id, p.next(), since)
	for err != nil {
		if l.overtaken = errors.Is(err, errOvertaken); l.overtaken {
			return
		}
		l.d.logFailure(ctx, "move a cursor", err)
		if l.d.pause(ctx) != nil {
			return
		}
		more, err = l.moveCursor(ctx, b, id, p.next(), since)
	}
	l.applied()
	if !done {
		return
	}
	if since.IsZero() {
		since = l.known[id]
	}
	delete(l.open, id)
	delete(l.known, id)
	if more {
		l.await(id, since)
	}
}

// errLost says that the store has lost what a page is of.
var errLost = errors.New("the store has lost transactions")

// moveCursor applies work with the cursor at a position, and reports whether something follows,
// which has happened since a time. The cursor of another server that is further stays where it is.
func (l *lane) moveCursor(
	ctx context.Context, work *kv.Batch, id refs.RepoID, next position, since time.Time,
) (more bool, err error) {
	err = l.d.update(ctx, func(b *kv.Batch) error {
		b.Append(work)
		row, found, err := l.requireCursor(ctx, b, id)
		if err != nil {
			return err
		}
		if l.isLost() { // the row is that of others
			return errLost
		}
		if next.compare(row.Next) > 0 {
			row.Next = next
			if !since.IsZero() {
				row.Since = since
			}
		}
		if more = found && row.Next.Sequence <= row.Last; more {
			return put(b, streamKey(l.id, id), row)
		}
		b.Delete(streamKey(l.id, id))
		return nil
	})
	return more, err
}
