package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"packhorse/odb/kv"
	"packhorse/odb/rescue"
	"packhorse/refs"
)

// Times of the goroutine that reads the outbox.
const (
	// sweepEvery is the interval of searches for missed notifications and for removed hooks.
	sweepEvery = time.Minute
	// forgetAfter is the time after which the rows of a removed hook are deleted: a broken edit of
	// the configuration loses nothing.
	forgetAfter = time.Hour
	// gather is the time, of the machine, between two readings of the outbox of one repository, for
	// each gatherHooks webhooks or a part of them: what happens to it meanwhile costs them no more
	// than one change.
	gather      = 100 * time.Millisecond
	gatherHooks = 16
	// expireEvery is the interval of checks for expired dead letters, and deadAge their life.
	expireEvery = time.Hour
	deadAge     = 30 * 24 * time.Hour
)

// run passes the rows of the outbox to the lanes of the hooks.
func (d *Deliverer) run(ctx context.Context) {
	missing := make(map[hookID]time.Time)
	var searchAt, sweepAt, expireAt time.Time
	for ctx.Err() == nil {
		now := d.Clock.Now()
		if !now.Before(searchAt) {
			searchAt = now.Add(d.Search)
			d.logFailure(ctx, "read outbox", d.findWaiting(ctx))
			d.logFailure(ctx, "read revived dead letters", d.reopenRevived(ctx))
		}
		if !now.Before(sweepAt) {
			sweepAt = now.Add(sweepEvery)
			d.logFailure(ctx, "read hooks", d.openLanes(ctx))
			d.logFailure(ctx, "forget hooks", d.forgetMissing(ctx, missing))
			d.askLag()
			if !now.Before(expireAt) {
				expireAt = now.Add(expireEvery)
				d.logFailure(ctx, "expire dead letters", d.expire(ctx, now.Add(-deadAge)))
			}
		}
		repos, rest := d.takeTold(time.Now())
		for _, repo := range repos {
			hooks, err := d.hear(ctx, repo)
			d.logFailure(ctx, "read outbox", err) // the next sweep finds it again
			d.restsUntil[repo.ID] = time.Now().Add(restOf(hooks))
		}
		d.heard()
		if len(repos) > 0 {
			continue
		}
		if rest > 0 {
			time.AfterFunc(rest, func() { signal(d.wake) })
		}
		next := sweepAt
		if searchAt.Before(next) {
			next = searchAt
		}
		if d.waitUntil(ctx, next, d.wake) != nil {
			return
		}
	}
}

func (d *Deliverer) logFailure(ctx context.Context, step string, err error) {
	if err != nil && ctx.Err() == nil {
		d.Logger.ErrorContext(ctx, "failed to process webhooks", "step", step, "error", err)
	}
}

// openLanes opens the lanes of all hooks that have rows.
func (d *Deliverer) openLanes(ctx context.Context) error {
	for hook, err := range scan[hookRow](ctx, d.KV, []byte{table, kindHook}) {
		if err != nil {
			return err
		}
		d.lane(ctx, hook.row)
	}
	return nil
}

// lane returns the lane of a hook, and opens it if needed. It is called by one goroutine.
func (d *Deliverer) lane(ctx context.Context, hook hookRow) *lane {
	id := newHookID(hook.Org, hook.URL)
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lanes[id]
	if l == nil {
		l = newLane(ctx, d, id, hook)
		d.lanes[id] = l
		rescue.Go(&d.ended, func() error {
			l.run()
			return nil
		}, func(err error) {
			l.panicked(err)
			d.lose(l)
		})
	}
	return l
}

// lose forgets a lane that a panic has ended. Its events are in the store, and the next sweep opens
// it again.
func (d *Deliverer) lose(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lanes[l.id] == l {
		delete(d.lanes, l.id)
	}
}

func (d *Deliverer) hasLane(id hookID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes[id] != nil
}

// takeTold returns a repository of each organization, whose outbox is to be read: one with many
// repositories does not delay the events of the others. Those that were read lately have to rest;
// without others it returns for how long.
func (d *Deliverer) takeTold(now time.Time) (repos []Repository, rest time.Duration) {
	maps.DeleteFunc(d.restsUntil, func(_ refs.RepoID, until time.Time) bool { return !now.Before(until) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hearing = time.Time{}
	for org, queued := range d.queued {
		i := slices.IndexFunc(queued, func(repo Repository) bool {
			until, rests := d.restsUntil[repo.ID]
			if left := until.Sub(now); rests && (rest == 0 || left < rest) {
				rest = left
			}
			return !rests
		})
		if i < 0 {
			continue
		}
		repo := queued[i]
		repos = append(repos, repo)
		copy(queued[1:], queued[:i])
		if d.queued[org] = queued[1:]; len(queued) == 1 {
			delete(d.queued, org)
		}
		if at := d.told[repo.ID]; d.hearing.IsZero() || at.Before(d.hearing) {
			d.hearing = at
		}
		delete(d.told, repo.ID)
	}
	return repos, rest
}

// heard says that the outbox of all repositories was read that takeTold returned.
func (d *Deliverer) heard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hearing = time.Time{}
}

// restOf is the time between two readings of the outbox of a repository with so many hooks.
func restOf(hooks int) time.Duration {
	return gather * time.Duration(max(1, (hooks+gatherHooks-1)/gatherHooks))
}

// findWaiting processes all rows of the outbox, including those of other and earlier processes.
func (d *Deliverer) findWaiting(ctx context.Context) error {
	for id, err := range d.Source.Waiting(ctx) {
		if err != nil {
			return err
		}
		d.Told(Repository{ID: id})
	}
	return nil
}

// hear passes the outbox rows of a repository to all hooks of its organization, and returns their
// number.
func (d *Deliverer) hear(ctx context.Context, repo Repository) (count int, err error) {
	id := repo.ID
	if repo.Org == "" {
		named, err := d.Source.Repository(ctx, id)
		if err != nil && !errors.Is(err, refs.ErrRepositoryNotFound) {
			return 0, err
		}
		repo = named
	}
	var hooks []hookRow
	var last uint64
	err = d.Turn(ctx, repo.tenant(), func(ctx context.Context) (err error) {
		hooks, last, err = d.pass(ctx, id)
		return err
	})
	if err != nil || last == 0 {
		return 0, err
	}
	if len(d.seen) >= seenMax {
		clear(d.seen)
	}
	d.seen[id] = last
	for _, hook := range hooks {
		d.lane(ctx, hook).post(id)
	}
	return len(hooks), nil
}

// pass moves the outbox rows of a repository to the streams of the hooks of its organization, and
// returns these and the last transaction; 0 without rows.
func (d *Deliverer) pass(ctx context.Context, id refs.RepoID) (hooks []hookRow, last uint64, err error) {
	err = d.update(ctx, func(b *kv.Batch) error {
		hooks, last = nil, 0
		first, end, found, err := d.Source.Span(ctx, id, d.seen[id])
		if err != nil || !found {
			return err
		}
		repo, err := d.Source.Repository(ctx, id)
		if err != nil && !errors.Is(err, refs.ErrRepositoryNotFound) {
			return err
		}
		if err == nil {
			hooks = d.hooks(repo.Org)
		}
		last = end
		return d.extend(ctx, b, id, hooks, first, last)
	})
	return hooks, last, err
}

// hooks returns the hooks of an organization, each once.
func (d *Deliverer) hooks(org string) []hookRow {
	var hooks []hookRow
	for _, hook := range d.Source.Hooks(org) {
		if row := (hookRow{Org: org, URL: hook.URL}); !slices.Contains(hooks, row) {
			hooks = append(hooks, row)
		}
	}
	return hooks
}

// find returns a hook as it is configured now.
func (d *Deliverer) find(row hookRow) (Hook, bool) {
	hooks := d.Source.Hooks(row.Org)
	i := slices.IndexFunc(hooks, func(hook Hook) bool { return hook.URL == row.URL })
	if i < 0 {
		return Hook{}, false
	}
	return hooks[i], true
}

// extend adds to b the move of transactions from the outbox to the streams of hooks.
func (d *Deliverer) extend(
	ctx context.Context, b *kv.Batch, id refs.RepoID, hooks []hookRow, first, last uint64,
) error {
	d.Source.Take(b, id, first, last)
	var set kv.ReadSet
	for _, hook := range hooks {
		set.Keys = append(set.Keys, streamKey(newHookID(hook.Org, hook.URL), id))
	}
	if len(hooks) == 0 {
		return nil
	}
	rows, err := d.KV.Read(ctx, set)
	if err != nil {
		return fmt.Errorf("read cursors: %w", err)
	}
	for i, hook := range hooks {
		hookID := newHookID(hook.Org, hook.URL)
		row, found, err := requireStream(b, set.Keys[i], rows.Values[i])
		if err != nil {
			return err
		}
		if !found {
			row = stream{Next: position{Sequence: first}, Since: d.Clock.Now()}
		}
		row.Last = last
		if err := put(b, set.Keys[i], row); err != nil {
			return err
		}
		if !d.hasLane(hookID) {
			if err := put(b, append([]byte{table, kindHook}, hookID[:]...), hook); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetMissing removes the rows of hooks that have been gone from the configuration for long
// enough.
func (d *Deliverer) forgetMissing(ctx context.Context, missing map[hookID]time.Time) error {
	now := d.Clock.Now()
	for _, l := range d.allLanes() {
		if _, found := d.find(l.hook); found {
			delete(missing, l.id)
			continue
		}
		if since, ok := missing[l.id]; !ok {
			missing[l.id] = now
			continue
		} else if now.Sub(since) < forgetAfter {
			continue
		}
		l.close()
		b := kv.NewBatch()
		forget(b, l.id)
		if err := d.apply(ctx, b); err != nil {
			return err
		}
		d.mu.Lock()
		delete(d.lanes, l.id)
		d.mu.Unlock()
		delete(missing, l.id)
		d.Logger.InfoContext(ctx, "webhook: removed from the configuration, its events are discarded", "org", l.hook.Org,
			"host", l.hook.host())
	}
	return nil
}

func (d *Deliverer) allLanes() []*lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	lanes := make([]*lane, 0, len(d.lanes))
	for _, l := range d.lanes {
		lanes = append(lanes, l)
	}
	return lanes
}

// expire removes the dead letters that died before a time.
func (d *Deliverer) expire(ctx context.Context, before time.Time) error {
	const batchMax = 1000
	b := kv.NewBatch()
	for letter, err := range scan[delivery](ctx, d.KV, []byte{table, kindDead}) {
		if err != nil {
			return err
		}
		if letter.row.Died.Before(before) {
			b.Delete(letter.key)
		}
		if b.Count() >= batchMax {
			if err := d.apply(ctx, b); err != nil {
				return err
			}
			b = kv.NewBatch()
		}
	}
	return d.apply(ctx, b)
}
