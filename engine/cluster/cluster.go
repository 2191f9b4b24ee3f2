// Package cluster lets several servers share a pair of stores: each knows which others live, and
// every duty, such as maintenance, is done by one of them.
//
// Start at [Join]. Each server keeps a row that it renews with every beat, and reads all rows
// several times between two beats; a server whose row has stood still for a while is removed by any
// other, in a batch that requires the row as it was seen. A duty is a row that names its owner, and
// is free when the owner has no row. Nothing is decided by the clock of another machine: each
// server measures, by its own monotonic clock, how long the row of another stands still. A server
// that cannot renew its row ends its duties before the others may remove it.
//
// The duties of a server that was killed are done by another one within 18 seconds, and the time of
// some calls of the store: a second until the others have seen its last row, 15 of patience, a
// second until one of them looks again and removes it, and a second until the one to which the duty
// falls looks. The map, by file:
//
//	cluster  Config, Join, Leave, and the beats
//	duty     duties of this server, their beginning and end
//	tenure   what claims that are no duties name
//	rows     the stored rows
//	list     the servers as operators see them
//	horizon  instants after which all views of the other servers began
//	live     the IDs of servers that were not removed
//	clocks   how far the clocks of the others differ, for operators
//
// Ownership of a duty saves work and guards nothing: what a duty writes holds by the preconditions
// of its own batches.
package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
)

// Config is the configuration of a member. Keys is required.
type Config struct {
	Keys kv.Store
	// URL and Version describe this server to operators.
	URL, Version string
	// Duties are what this server does when no other does it.
	Duties []Duty
	// Departed is called when another server has gone, whether it said so or not. It must not block.
	// It is called for the servers that were there when this one joined, and for later ones.
	Departed func()
	// Views are those of this server; nil: there are none.
	Views Views
	// Beat is the time between two renewals of the row, 3 s; the rows of others are looked at three
	// times as often. Patience is how long the row of another server may stand still, 15 s; every
	// server must have the same.
	Beat, Patience time.Duration
	// Now is the clock that is compared with those of the others, time.Now by default.
	Now    func() time.Time
	Logger *slog.Logger
}

// Views counts the open views of the store's layers in this server by epoch, which is the number of
// the last beat that the others may know: *odb.Epochs is one. Its methods do not block.
type Views interface {
	// Enter begins an epoch above all former ones, Advance a later one. The others may remove this
	// server from until on.
	Enter(epoch uint64, until time.Time)
	Advance(epoch uint64, until time.Time)
	// Lapse is called when the others have removed this server, or it leaves.
	Lapse()
	// Oldest returns the epoch of the oldest open view, and the present one if there is none.
	Oldest() uint64
}

// noViews are the views of a server without any.
type noViews struct{ epoch uint64 }

func (v *noViews) Enter(epoch uint64, _ time.Time)   { v.epoch = epoch }
func (v *noViews) Advance(epoch uint64, _ time.Time) { v.epoch = epoch }
func (v *noViews) Lapse()                            {}
func (v *noViews) Oldest() uint64                    { return v.epoch }

// Duty is work that one server does for all. Names are those of docs/formats.md, and equal on all
// servers.
type Duty struct {
	Name string
	// Work does the duty until ctx ends, and returns soon afterwards. After an error, or a panic, it
	// is begun again at a later beat.
	Work func(ctx context.Context) error
}

// patience is how long the row of a server may stand still.
const patience = 15 * time.Second

// looks is how often a server looks at the rows of the others during a beat.
const looks = 3

// Member is this server among those that share the stores. Its methods may be called concurrently.
type Member struct {
	Config

	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex      // guards the fields below
	id      serverID        // drawn anew after this server was removed
	renewed time.Time       // when the last renewal that succeeded began
	held    []string        // the duties that run, sorted
	tenure  context.Context // of the term
	apart   time.Duration   // see ClockDifference

	// The fields below belong to the goroutine that beats.
	row  []byte                // the last one that was sent, nil when it was removed
	beat uint64                // its number, or the last one before
	sent time.Time             // when the renewal began that sent it
	seen map[serverID]sighting // of the other servers
	term *term

	clocks map[serverID]clock // of the other servers
	looked time.Time          // when the last look began, by Now
}

// sighting is the row of another server, and since when it has not changed.
type sighting struct {
	row   string
	since time.Time
}

// Join adds this server and begins its beats, until [Member.Leave].
func Join(ctx context.Context, c Config) (*Member, error) {
	c.Beat = cmp.Or(c.Beat, 3*time.Second)
	c.Patience = cmp.Or(c.Patience, patience)
	if c.Views == nil {
		c.Views = new(noViews)
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Departed == nil {
		c.Departed = func() {}
	}
	m := &Member{Config: c, seen: make(map[serverID]sighting)}
	if err := m.enter(ctx); err != nil {
		return nil, fmt.Errorf("join the servers of the store: %w", err)
	}
	beating, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	rescue.Go(&m.ended, func() error {
		m.run(beating)
		return nil
	}, func(err error) { c.Logger.ErrorContext(ctx, "failed to beat", "error", err) })
	return m, nil
}

// Leave ends the duties of this server, waits for their end, and removes its rows, so that others
// need not wait for its silence.
func (m *Member) Leave(ctx context.Context) error {
	m.cancel()
	m.ended.Wait()
	m.Views.Lapse()
	rows, err := readRows(ctx, m.Keys)
	if err != nil {
		return fmt.Errorf("leave the servers of the store: %w", err)
	}
	value, there := rows.servers[m.id]
	if !there {
		return nil
	}
	b := kv.NewBatch()
	m.remove(b, rows, m.id, value)
	if _, err := m.Keys.Apply(ctx, b); err != nil && !errors.Is(err, kv.ErrConflict) {
		return fmt.Errorf("leave the servers of the store: %w", err)
	}
	return nil
}

// ID returns the id under which the others see this server now.
func (m *Member) ID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id.String()
}

// Held returns the names of the duties that this server does now.
func (m *Member) Held() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.held)
}

// Age returns the time since the last renewal of this server's row began.
func (m *Member) Age() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.renewed)
}

// Silent reports whether the row was not renewed for so long that the duties have ended, and the
// others may remove this server.
func (m *Member) Silent() bool { return m.Age() >= m.fence() }

// fence is how long after its last renewal this server ends its duties: before the others, who saw
// that renewal later than it began, lose their patience.
func (m *Member) fence() time.Duration { return m.Patience * 4 / 5 }

// enter draws an id and stores the first row under it. Its number goes on from that of the row
// before, since the epochs of views do.
func (m *Member) enter(ctx context.Context) error {
	var id serverID
	_, _ = rand.Read(id[:]) // does not fail
	begun := time.Now()
	m.beat++
	row := m.encode(m.beat)
	b := kv.NewBatch()
	b.RequireAbsent(id.key())
	b.Put(id.key(), row)
	if _, err := m.Keys.Apply(ctx, b); err != nil {
		return err
	}
	m.row, m.sent = row, begun
	m.term = newTerm(m, begun)
	m.Views.Enter(m.beat, begun.Add(m.fence()))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id, m.renewed, m.tenure = id, begun, m.term.ctx
	return nil
}

// encode returns the row of a number.
func (m *Member) encode(beat uint64) []byte {
	row := serverRow{
		Beat: beat, Oldest: m.Views.Oldest(), URL: m.URL, Version: m.Version, Time: m.Now().UTC(), Intents: true,
	}
	for _, d := range m.Duties {
		row.Duties = append(row.Duties, d.Name)
	}
	return row.encode()
}

// run beats, and looks at the other servers between the beats, until ctx ends. After a failure it
// beats at once instead of looking.
func (m *Member) run(ctx context.Context) {
	ticker := time.NewTicker(m.Beat / looks)
	defer ticker.Stop()
	for n := 0; ; n++ {
		err := rescue.Do(func() error { return m.pulse(ctx, n%looks == 0) })
		if err != nil && ctx.Err() == nil {
			m.Logger.WarnContext(ctx, "failed to renew the row of this server", "error", err)
		}
		if err != nil {
			n = -1
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			m.term.end()
			m.term.wait()
			return
		}
	}
}

// errRemoved says that another server has removed this one.
var errRemoved = errors.New("another server has removed this one, which was silent for too long")

// pulse is one beat, or a look between two: it reads the rows, renews that of this server with a
// beat, removes the servers that are silent, and takes the free duties that fall to this one.
func (m *Member) pulse(ctx context.Context, beat bool) error {
	if m.term.hasEnded() { // a fence or a removal has ended the duties
		if m.row == nil {
			if err := m.enter(ctx); err != nil {
				return err
			}
		} else {
			m.term = newTerm(m, time.Time{})
			m.mu.Lock()
			m.tenure = m.term.ctx
			m.mu.Unlock()
		}
	}
	begun, clock := time.Now(), m.Now()
	rows, err := readRows(ctx, m.Keys)
	if err != nil {
		return err
	}
	m.compareClocks(ctx, rows, m.looked, m.Now())
	m.looked = clock
	m.observe(rows, time.Now())
	if _, there := rows.servers[m.id]; beat || !there {
		if err := m.renew(ctx, rows, begun); err != nil {
			return err
		}
	}
	for id, value := range rows.servers {
		if id == m.id || time.Since(m.seen[id].since) < m.Patience {
			continue
		}
		m.Logger.WarnContext(ctx, "removing a server that is silent", "server", id.String())
		b := kv.NewBatch()
		m.remove(b, rows, id, value)
		_, err := m.Keys.Apply(ctx, b)
		switch {
		case errors.Is(err, kv.ErrConflict): // it, or a third server, was quicker: the next look shows
		case err != nil:
			return err
		default:
			rows.forget(id)
		}
	}
	m.observe(rows, time.Now())
	return m.takeDuties(ctx, rows)
}

// observe notes which rows have changed, and calls Departed for those that have gone.
func (m *Member) observe(rows *storedRows, now time.Time) {
	gone := false
	for id := range m.seen {
		if _, there := rows.servers[id]; !there {
			delete(m.seen, id)
			gone = true
		}
	}
	for id, value := range rows.servers {
		if last, known := m.seen[id]; id != m.id && (!known || last.row != string(value)) {
			m.seen[id] = sighting{row: string(value), since: now}
		}
	}
	if gone {
		m.Departed()
	}
}

// renew stores the next row of this server. Only this server changes its row, so that the row that
// was read is the last one, even if the answer to its renewal was lost. Errors: errRemoved.
func (m *Member) renew(ctx context.Context, rows *storedRows, begun time.Time) error {
	value, there := rows.servers[m.id]
	last, err := decodeServer(value)
	if there && err != nil {
		return err
	}
	if there && string(value) == string(m.row) {
		m.stands(last.Beat, m.sent) // also if its answer was lost
	}
	next := m.encode(last.Beat + 1)
	err = kv.ErrConflict
	if there {
		m.row, m.sent, m.beat = next, begun, last.Beat+1
		b := kv.NewBatch()
		b.Require(m.id.key(), value)
		b.Put(m.id.key(), next)
		_, err = m.Keys.Apply(ctx, b)
	}
	switch {
	case errors.Is(err, kv.ErrConflict):
		m.row = nil
		m.Views.Lapse()
		m.term.end()
		return errRemoved
	case err != nil:
		return err
	}
	rows.servers[m.id] = next
	m.stands(m.beat, begun)
	return nil
}

// stands notes that the others see a renewal of a number that began at a time.
func (m *Member) stands(beat uint64, begun time.Time) {
	m.term.extend(begun)
	m.Views.Advance(beat, begun.Add(m.fence()))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewed = begun
}

// remove adds to b the removal of a server, whose row is value, and of the rows of its duties.
func (m *Member) remove(b *kv.Batch, rows *storedRows, id serverID, value []byte) {
	b.Require(id.key(), value)
	b.Delete(id.key())
	for name, owner := range rows.owners {
		if owner == id {
			b.Require(dutyKey(name), id[:])
			b.Delete(dutyKey(name))
		}
	}
}
