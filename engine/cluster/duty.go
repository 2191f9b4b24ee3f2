package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
)

// term is a time in which this server does duties. It ends for good when the row of the server
// could not be renewed in time; the next term begins when all duties of this one have ended.
type term struct {
	m      *Member
	ctx    context.Context // of the duties
	cancel context.CancelFunc
	fence  *time.Timer
	group  sync.WaitGroup

	mu      sync.Mutex // guards running
	running map[string]bool
}

// newTerm begins a term. renewed is when the renewal began on which it stands, the zero time if
// there was none yet: then [term.extend] arms the fence.
func newTerm(m *Member, renewed time.Time) *term {
	t := &term{m: m, running: make(map[string]bool)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.fence = time.AfterFunc(m.fence(), t.end)
	if !renewed.IsZero() {
		t.extend(renewed)
	}
	return t
}

// extend puts off the end after a renewal that began at a time.
func (t *term) extend(renewed time.Time) { t.fence.Reset(t.m.fence() - time.Since(renewed)) }

// end cancels the duties.
func (t *term) end() {
	t.fence.Stop()
	t.cancel()
}

// wait returns when the duties have ended.
func (t *term) wait() { t.group.Wait() }

// hasEnded reports whether the term and all its duties have ended.
func (t *term) hasEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ctx.Err() != nil && len(t.running) == 0
}

// begin does a duty, unless it is under way.
func (t *term) begin(d Duty) {
	t.mu.Lock()
	if t.running[d.Name] || t.ctx.Err() != nil {
		t.mu.Unlock()
		return
	}
	t.set(d.Name, true)
	t.mu.Unlock()
	t.m.Logger.InfoContext(t.ctx, "this server takes over a duty", "duty", d.Name)
	rescue.Go(&t.group, func() error {
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.set(d.Name, false)
		}()
		return d.Work(t.ctx)
	}, func(err error) {
		if t.ctx.Err() == nil {
			t.m.Logger.ErrorContext(t.ctx, "a duty has failed", "duty", d.Name, "error", err)
		}
	})
}

// set notes whether a duty runs. The caller holds mu.
func (t *term) set(name string, runs bool) {
	if runs {
		t.running[name] = true
	} else {
		delete(t.running, name)
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	t.m.held = slices.Sorted(maps.Keys(t.running))
}

// takeDuties begins the duties that this server owns, and takes those that are free and fall to it.
func (m *Member) takeDuties(ctx context.Context, rows *storedRows) error {
	for _, d := range m.Duties {
		owner, owned := rows.owners[d.Name]
		if owned && owner == m.id {
			m.term.begin(d)
			continue
		}
		if _, lives := rows.servers[owner]; owned && lives || m.heir(rows, d.Name) != m.id {
			continue
		}
		b := kv.NewBatch()
		b.Require(m.id.key(), m.row)
		if owned {
			b.Require(dutyKey(d.Name), owner[:])
		} else {
			b.RequireAbsent(dutyKey(d.Name))
		}
		b.Put(dutyKey(d.Name), m.id[:])
		_, err := m.Keys.Apply(ctx, b)
		switch {
		case errors.Is(err, kv.ErrConflict): // another server was quicker
		case err != nil:
			return err
		default:
			m.term.begin(d)
		}
	}
	return nil
}

// heir returns the server to which a free duty falls: of those that do such duties and were not
// silent for half of the patience, the one with the highest hash (rendezvous hashing), so that
// duties spread over the servers.
func (m *Member) heir(rows *storedRows, duty string) serverID {
	var best serverID
	var most []byte
	for id, value := range rows.servers {
		row, err := decodeServer(value)
		if err != nil || !slices.Contains(row.Duties, duty) ||
			id != m.id && time.Since(m.seen[id].since) > m.Patience/2 {
			continue
		}
		sum := sha256.Sum256(append(id[:], duty...))
		if bytes.Compare(sum[:], most) > 0 {
			best, most = id, sum[:]
		}
	}
	return best
}
