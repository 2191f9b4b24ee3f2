package webhook

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"packhorse/odb/kv"
	"packhorse/refs"
)

// Status counts the pending events of a hook. Hooks are known from their first event on.
type Status struct {
	Org string `json:"org"`
	URL string `json:"url"`
	// It is not configured any more: nothing is sent, and in an hour its rows go.
	Missing bool      `json:"missing,omitempty"`
	Parked  int       `json:"parked"` // events that failed and are tried again
	Behind  uint64    `json:"behind"` // transactions whose events have not been dealt with, at most
	Oldest  time.Time `json:"oldest,omitzero"`
	// Of the parked event that has been tried most often, or else of a dead letter.
	LastError string `json:"last_error,omitempty"`
	Dead      int    `json:"dead"`
}

// Letter is a dead letter.
type Letter struct {
	ID       string    `json:"id"` // of the delivery, as receivers see it
	Org      string    `json:"org"`
	URL      string    `json:"url"`
	Event    Event     `json:"event"`
	Attempts int       `json:"attempts"`
	Error    string    `json:"error"`
	Since    time.Time `json:"since"`
	Died     time.Time `json:"died"`
	Lost     bool      `json:"lost,omitempty"` // it cannot be sent again: the journal was trimmed
}

// List walks the hooks.
func (d *Deliverer) List(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		for hook, err := range scan[hookRow](ctx, d.KV, []byte{table, kindHook}) {
			if err != nil {
				yield(Status{}, err)
				return
			}
			status, err := d.status(ctx, hook.row)
			if !yield(status, err) || err != nil {
				return
			}
		}
	}
}

func (d *Deliverer) status(ctx context.Context, hook hookRow) (Status, error) {
	id := newHookID(hook.Org, hook.URL)
	status := Status{Org: hook.Org, URL: hook.URL}
	if d.isStarted() {
		_, found := d.find(hook)
		status.Missing = !found
	}
	older := func(at time.Time) {
		if status.Oldest.IsZero() || at.Before(status.Oldest) {
			status.Oldest = at
		}
	}
	for row, err := range scan[stream](ctx, d.KV, hookPrefix(kindStream, id)) {
		if err != nil {
			return status, err
		}
		status.Behind += row.row.Last + 1 - row.row.Next.Sequence
		older(row.row.Since)
	}
	for row, err := range walkWaiting(ctx, d.KV, hookPrefix(kindWaiting, id)) {
		if err != nil {
			return status, err
		}
		status.Behind += row.count()
		older(row.Since)
	}
	tried := 0
	for row, err := range scan[delivery](ctx, d.KV, hookPrefix(kindParked, id)) {
		if err != nil {
			return status, err
		}
		status.Parked++
		older(row.row.Since)
		if row.row.Attempts > tried {
			tried, status.LastError = row.row.Attempts, row.row.Error
		}
	}
	for row, err := range scan[delivery](ctx, d.KV, hookPrefix(kindDead, id)) {
		if err != nil {
			return status, err
		}
		status.Dead++
		if tried == 0 {
			status.LastError = row.row.Error
		}
	}
	return status, nil
}

// Letters walks the dead letters of all hooks, of one organization when org is not empty.
func (d *Deliverer) Letters(ctx context.Context, org string) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		for hook, err := range scan[hookRow](ctx, d.KV, []byte{table, kindHook}) {
			if err != nil {
				yield(Letter{}, err)
				return
			}
			if org != "" && hook.row.Org != org {
				continue
			}
			for row, err := range scan[delivery](ctx, d.KV, hookPrefix(kindDead, newHookID(hook.row.Org, hook.row.URL))) {
				var repo refs.RepoID
				var at position
				if err == nil {
					repo, at, err = eventPosition(row.key)
				}
				letter := Letter{
					ID: deliveryID(repo, at), Org: hook.row.Org, URL: hook.row.URL, Event: row.row.Event, Attempts: row.row.Attempts,
					Error: row.row.Error, Since: row.row.Since, Died: row.row.Died, Lost: row.row.Lost,
				}
				if !yield(letter, err) || err != nil {
					return
				}
			}
		}
	}
}

// Selection selects the dead letters to retry. Empty fields select all.
type Selection struct {
	Org string
	URL string   // of the hook
	IDs []string // of deliveries
}

// RetryMax bounds the dead letters of a hook in one call of [Deliverer.Retry], which holds them in
// memory.
const RetryMax = 10_000

// Retry turns dead letters into pending events for another day. It returns how many, and whether
// there are more. Each goes before the waiting later events of its ref; events that have been
// delivered since stay delivered.
func (d *Deliverer) Retry(ctx context.Context, s Selection) (count int, more bool, err error) {
	for hook, err := range scan[hookRow](ctx, d.KV, []byte{table, kindHook}) {
		if err != nil {
			return count, more, err
		}
		if s.Org != "" && hook.row.Org != s.Org || s.URL != "" && hook.row.URL != s.URL {
			continue
		}
		taken, rest, err := d.retryHook(ctx, newHookID(hook.row.Org, hook.row.URL), s.IDs)
		count, more = count+taken, more || rest
		if err != nil {
			return count, more, err
		}
	}
	return count, more, nil
}

func (d *Deliverer) retryHook(ctx context.Context, hook hookID, ids []string) (count int, more bool, err error) {
	for {
		taken, more, err := d.retryLetters(ctx, hook, ids, RetryMax-count)
		count += taken
		if !errors.Is(err, kv.ErrConflict) {
			return count, more, err
		}
	}
}

// retryLetters turns up to most dead letters of a hook into pending events. Errors: kv.ErrConflict
// when another call has taken one of them.
func (d *Deliverer) retryLetters(
	ctx context.Context, hook hookID, ids []string, most int,
) (count int, more bool, err error) {
	const batchMax = 500
	var keys [][]byte
	b := kv.NewBatch()
	flush := func() error {
		if len(keys) == 0 {
			return nil
		}
		d.mu.Lock()
		l := d.lanes[hook]
		d.mu.Unlock()
		if l == nil {
			b.Put(hookPrefix(kindRevived, hook), nil) // another server may have the lane
		}
		commit, err := d.KV.Apply(ctx, b)
		if err == nil {
			err = commit.Wait(ctx)
		}
		if err != nil {
			return err
		}
		if l != nil {
			l.revive(keys)
		}
		count += len(keys)
		keys, b = nil, kv.NewBatch()
		return nil
	}
	for letter, err := range scan[delivery](ctx, d.KV, hookPrefix(kindDead, hook)) {
		if err != nil {
			return count, false, err
		}
		repo, at, err := eventPosition(letter.key)
		if err != nil {
			return count, false, err
		}
		if letter.row.Lost || len(ids) > 0 && !slices.Contains(ids, deliveryID(repo, at)) {
			continue
		}
		if count+len(keys) == most {
			more = true
			break
		}
		b.Require(letter.key, letter.value)
		b.Delete(letter.key)
		key := eventKey(kindParked, hook, repo, at)
		if err := put(b, key, delivery{Event: letter.row.Event, Since: d.Clock.Now(), Error: letter.row.Error}); err != nil {
			return count, false, err
		}
		if keys = append(keys, key); len(keys) == batchMax {
			if err := flush(); err != nil {
				return count, false, err
			}
		}
	}
	return count, more, flush()
}

// reopenRevived closes the lanes of hooks whose dead letters another server has revived, and opens
// them again with all that is parked.
func (d *Deliverer) reopenRevived(ctx context.Context) error {
	revived := kv.ScanOptions{Start: []byte{table, kindRevived}, End: []byte{table, kindRevived + 1}}
	for pair, err := range d.KV.Scan(ctx, revived) {
		if err != nil {
			return err
		}
		if len(pair.Key) != 2+len(hookID{}) {
			return fmt.Errorf("%w: key of %d bytes", errCorrupt, len(pair.Key))
		}
		id := hookID(pair.Key[2:])
		b := kv.NewBatch()
		b.Delete(pair.Key) // first: what is revived from now on puts it again
		if err := d.apply(ctx, b); err != nil {
			return err
		}
		d.mu.Lock()
		l := d.lanes[id]
		d.mu.Unlock()
		if l == nil {
			continue // it will load what is parked
		}
		l.close()
		d.lose(l)
		d.lane(ctx, l.hook)
	}
	return nil
}
