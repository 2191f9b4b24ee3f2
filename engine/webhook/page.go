package webhook

import (
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
	for len(l.open) < lanePages && l.parked < parkedMax && len(l.ready) > 0 {
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

// restFactor is how much longer than its work the rest behind a page takes, while requests are
// served.
const restFactor = 4

// openInTurn opens a page when no other lane does.
func (l *lane) openInTurn(id refs.RepoID, now time.Time) error {
	release, err := l.d.opening.Acquire(l.ctx, fair.Tenant{Org: l.hook.Org}, 0, 1)
	if err != nil {
		return err
	}
	defer release()
	began := time.Now()
	if err := l.openPage(id, now); err != nil {
		return err
	}
	if l.d.Busy == nil || !l.d.Busy() {
		return nil
	}
	timer := time.NewTimer(restFactor * time.Since(began))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
	}
	return nil
}

// passed is the time of the last settled event at the front, zero without one. What follows is not
// older.
func (p *page) passed(now time.Time) time.Time {
	if p.head == 0 {
		return time.Time{}
	}
	return p.items[p.head-1].Event.time(now)
}

func (l *lane) openPage(id refs.RepoID, now time.Time) error {
	row, found, err := l.d.readStream(l.ctx, l.id, id)
	if err != nil {
		return err
	}
	if !found {
		delete(l.known, id)
		return nil
	}
	events, repo, err := l.read(id, row.Next.Sequence-1)
	b := kv.NewBatch()
	p := &page{}
	trimmed, isTrimmed := errors.AsType[*refs.TrimmedError](err)
	switch {
	case errors.Is(err, refs.ErrRepositoryNotFound):
		p.end = position{Sequence: row.Last + 1}
	case isTrimmed && trimmed.Oldest > row.Next.Sequence:
		p.end = position{Sequence: trimmed.Oldest}
		l.lose(b, id, row.Next, trimmed.Oldest, now)
	case err != nil:
		return err
	default:
		p.take(events, &repo, &row)
	}
	l.open[id] = p
	for _, it := range p.items {
		l.enqueue(b, it, now)
	}
	l.advance(b, id)
	return nil
}

// read returns the entries after a position of the journal.
func (l *lane) read(id refs.RepoID, after uint64) (refs.Page, Repository, error) {
	repo, err := l.d.Source.Repository(l.ctx, id)
	if err != nil {
		return refs.Page{}, Repository{}, err
	}
	events, err := l.d.Source.Events(l.ctx, id, after, pageEvents)
	return events, repo, err
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
func (l *lane) advance(b *kv.Batch, id refs.RepoID) {
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
		_ = l.d.apply(l.storing, b) // it fails only when the lane ends; the work is done again then
		return
	}
	since := p.passed(l.d.Clock.Now())
	more, err := l.moveCursor(b, id, p.next(), since)
	for err != nil {
		l.d.logFailure(l.storing, "move a cursor", err)
		if l.d.pause(l.storing) != nil {
			return
		}
		more, err = l.moveCursor(b, id, p.next(), since)
	}
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
	work *kv.Batch, id refs.RepoID, next position, since time.Time,
) (more bool, err error) {
	err = l.d.update(l.storing, func(b *kv.Batch) error {
		b.Append(work)
		row, found, err := l.d.requireStream(l.storing, b, l.id, id)
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
