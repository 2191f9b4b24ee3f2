package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// missingPause is the pause of a lane whose hook is not in the configuration.
const missingPause = 2 * time.Second

// Bounds of a lane.
const (
	laneSlots  = 4      // attempts at once
	lanePages  = 4      // repositories whose journal it has open
	pageEvents = 200    // events of a page
	parkedMax  = 10_000 // parked events with which it opens no more pages; the open ones may park some more
)

// lane sends the events of one hook. The fields below inbox belong to its goroutine.
type lane struct {
	d       *Deliverer
	id      hookID
	hook    hookRow
	log     *slog.Logger
	ctx     context.Context // ends when nothing more is to begin; close and Stop end it
	cancel  context.CancelFunc
	sending context.Context // of attempts under way: ends some time after ctx
	storing context.Context // of what is known about them: ends some time after sending
	ended   chan struct{}
	rewinds uint64        // of the store when it was made
	wake    chan struct{} // holds one when there is something in the inbox
	results chan attempt  // has room for all attempts

	mu    sync.Mutex // guards inbox and lag
	inbox inbox
	lag   laneLag

	ready    []refs.RepoID             // repositories with something in their stream, in the order of their turns
	known    map[refs.RepoID]time.Time // those that are ready or open, and since when something waited
	open     map[refs.RepoID]*page
	queues   map[refKey]*queue
	runnable []*queue // whose first event is due, in the order of their turns
	busy     int      // attempts under way
	parked   int
	emptied  []*queue  // what waits for them in the journal is to be read
	refilled int       // events in memory that have waited there
	revived  [][]byte  // what is left of the inbox's
	resumeAt time.Time // nothing more is read before: the stores failed
	missing  bool      // the hook was not configured at the last step
	asked    bool      // the lag is to be measured

	token     []byte   // of the lane; the hook has that of the lane that works on it
	overtaken bool     // it is that of another one
	storedNow []*queue // whose rows of what waits are in the batch that is being made
}

// inbox holds notifications for a lane.
type inbox struct {
	repositories map[refs.RepoID]time.Time // whose stream has grown, and when
	revived      [][]byte                  // keys of parked events that were dead letters
	measure      bool                      // the lag is to be measured
}

func (h *hookRow) host() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

func newLane(ctx context.Context, d *Deliverer, id hookID, hook hookRow) *lane {
	l := &lane{
		d: d, id: id, hook: hook, log: d.Logger.With("org", hook.Org, "host", hook.host()),
		rewinds: d.rewinds(),
		ended:   make(chan struct{}), wake: make(chan struct{}, 1), results: make(chan attempt, laneSlots),
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.sending = outlasting(l.ctx, d.Linger)
	l.storing = outlasting(l.sending, d.Linger)
	return l
}

// outlasting returns a context that ends a time after ctx has ended.
func outlasting(ctx context.Context, by time.Duration) context.Context {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { // bare: it cancels
		if by <= 0 {
			cancel()
			return
		}
		time.AfterFunc(by, cancel)
	})
	return longer
}

// close ends the lane and waits until it has ended.
func (l *lane) close() {
	l.cancel()
	<-l.ended
}

// post notifies the lane of new events of a repository.
func (l *lane) post(id refs.RepoID) {
	now := l.d.Clock.Now()
	l.mu.Lock()
	if l.inbox.repositories == nil {
		l.inbox.repositories = make(map[refs.RepoID]time.Time)
	}
	if _, ok := l.inbox.repositories[id]; !ok {
		l.inbox.repositories[id] = now
	}
	l.mu.Unlock()
	signal(l.wake)
}

// revive notifies the lane of dead letters that became parked events.
func (l *lane) revive(keys [][]byte) {
	l.mu.Lock()
	l.inbox.revived = append(l.inbox.revived, keys...)
	l.mu.Unlock()
	signal(l.wake)
}

// run sends due events until the lane is closed.
func (l *lane) run() {
	defer close(l.ended)
	defer l.cancel()
	defer l.leave()
	for first := true; ; first = false {
		for first || l.overtaken {
			l.forget()
			err := l.load()
			if err == nil {
				break
			}
			first = true
			l.d.logFailure(l.ctx, "read pending events", err)
			if l.d.pause(l.ctx) != nil {
				return
			}
		}
		l.takeInbox()
		due := l.step()
		l.measure()
		if l.overtaken {
			continue
		}
		var fired <-chan time.Time
		stop := func() {}
		if !due.IsZero() {
			fired, stop = l.d.Clock.At(due)
		}
		select {
		case <-l.ctx.Done():
		case <-l.wake:
		case a := <-l.results:
			l.complete(a)
		case <-fired:
		}
		stop()
		if l.ctx.Err() != nil {
			return
		}
	}
}

// forget empties the memory, and has nothing to do with what becomes of the attempts under way: it
// is what the rows say that is to be sent.
func (l *lane) forget() {
	for ; l.busy > 0; l.busy-- {
		<-l.results
	}
	for _, q := range l.queues {
		l.d.pending.Add(-int64(len(q.items)))
	}
	l.ready, l.runnable, l.emptied = nil, nil, nil
	l.known, l.open, l.queues = make(map[refs.RepoID]time.Time), make(map[refs.RepoID]*page), make(map[refKey]*queue)
	l.parked, l.refilled, l.overtaken = 0, 0, false
}

// leave waits for the attempts under way and stores what becomes of them: an event that a receiver
// has taken is not sent again by the next lane. It subtracts the events in memory from the count.
func (l *lane) leave() {
	defer func() {
		for _, q := range l.queues {
			l.d.pending.Add(-int64(len(q.items)))
		}
	}()
	for l.busy > 0 {
		l.complete(<-l.results)
	}
}

// load takes over the hook and resumes the rows of an earlier lane.
func (l *lane) load() error {
	if err := l.takeOver(l.ctx); err != nil {
		return err
	}
	for row, err := range scan[delivery](l.ctx, l.d.KV, hookPrefix(kindParked, l.id)) {
		if err == nil {
			err = l.insert(row.key, row.row)
		}
		if errors.Is(err, errCorrupt) { // the others are sent
			l.d.logFailure(l.ctx, "resume a parked event", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	for row, err := range scan[waiting](l.ctx, l.d.KV, hookPrefix(kindWaiting, l.id)) {
		if err == nil {
			err = l.loadWaiting(row.key, row.row)
		}
		if errors.Is(err, errCorrupt) { // the others are sent
			l.d.logFailure(l.ctx, "resume what waits", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	for row, err := range scan[stream](l.ctx, l.d.KV, hookPrefix(kindStream, l.id)) {
		if err != nil && !errors.Is(err, errCorrupt) { // opening it reports the error
			return err
		}
		since := row.row.Since
		if since.IsZero() { // it is damaged
			since = l.d.Clock.Now()
		}
		l.await(refs.RepoID(row.key[len(row.key)-len(refs.RepoID{}):]), since)
	}
	return nil
}

// isLost reports whether what the lane has in memory may be of transactions that the store has
// lost.
func (l *lane) isLost() bool { return l.rewinds != l.d.rewinds() }

// await queues a repository for its turn, in which something has waited since a time.
func (l *lane) await(id refs.RepoID, since time.Time) {
	if _, ok := l.known[id]; !ok {
		l.known[id] = since
		l.ready = append(l.ready, id)
	}
}

func (l *lane) takeInbox() {
	l.mu.Lock()
	taken := l.inbox
	l.inbox = inbox{}
	l.mu.Unlock()
	for id, since := range taken.repositories {
		l.await(id, since)
	}
	l.asked = l.asked || taken.measure
	l.revived = append(l.revived, taken.revived...)
}

// resume takes up the dead letters that became parked events. Those that the stores fail to read
// stay for the next time.
func (l *lane) resume(now time.Time) {
	for len(l.revived) > 0 {
		key := l.revived[0]
		value, err := l.d.KV.Get(l.ctx, key)
		if err != nil && !errors.Is(err, kv.ErrNotFound) && !errors.Is(err, kv.ErrCorrupt) {
			l.resumeAt = now.Add(storePause)
			l.d.logFailure(l.ctx, "resume dead letters", err)
			return
		}
		l.revived = l.revived[1:]
		if errors.Is(err, kv.ErrNotFound) { // it was among what load took, and has been sent
			continue
		}
		if err == nil {
			var row delivery
			if row, err = decodeRow[delivery](value); err == nil {
				err = l.insert(key, row)
			}
		}
		l.d.logFailure(l.ctx, "resume a dead letter", err) // it is a parked event, which the next start takes up
	}
}

// step starts due attempts and returns the time of the next one, or the zero time.
func (l *lane) step() time.Time {
	now := l.d.Clock.Now()
	hook, found := l.d.find(l.hook)
	if l.missing = !found; l.missing {
		return now.Add(missingPause)
	}
	var due time.Time
	sooner := func(at time.Time) {
		if due.IsZero() || at.Before(due) {
			due = at
		}
	}
	if !l.resumeAt.After(now) {
		l.resume(now)
	}
	if l.parked > 0 {
		for _, q := range l.queues {
			if len(q.items) == 0 {
				continue
			}
			if at := q.items[0].Next; at.After(now) {
				sooner(at)
			} else {
				l.list(q)
			}
		}
	}
	if !l.resumeAt.After(now) {
		l.refill(now)
	}
	if !l.resumeAt.After(now) {
		l.openPages(now)
	}
	if l.resumeAt.After(now) {
		sooner(l.resumeAt)
	}
	l.dispatch(hook)
	return due
}

// list queues the first event of a queue for sending.
func (l *lane) list(q *queue) {
	if !q.busy && !q.listed {
		q.listed = true
		l.runnable = append(l.runnable, q)
	}
}
