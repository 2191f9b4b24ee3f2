package odb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"packhorse/odb/file"
	"packhorse/odb/hot"
	"packhorse/odb/kv"
	"packhorse/odb/segment"
	"packhorse/pack/object"
)

// Swept counts the deletions of [Store.Sweep].
type Swept struct {
	// PoolCount, LayerCount and FileCount are pools, hot layers and visibility sets, and files of
	// segments and auxiliary files.
	PoolCount, LayerCount, FileCount int
	// WaitingCount is the number of obsolete entries that stay until their users and readers have
	// gone.
	WaitingCount int
}

// DropPool adds the release of a pool, whose repository b deletes, to b. A later [Store.Sweep]
// deletes its layers.
func (s *Store) DropPool(b *kv.Batch, pool PoolID) {
	entry := segment.Obsolete{Time: s.options.Now(), Kind: segment.KindPool, ID: segment.LayerID(pool)}
	b.Put(entry.Key(tableObsolete), pool[:])
}

// Sweep deletes obsolete layers and pools, those whose entry is at least grace old: files with
// their registrations, and the rows of hot layers and visibility sets. A layer that another pool
// uses, or a view
// of this process has pinned, stays until a later call. Where other processes share the store,
// Sweep also waits for their views; see [Options]. After a failure Sweep goes on with the next
// entry, and returns the errors joined.
func (s *Store) Sweep(ctx context.Context, grace time.Duration) (Swept, error) {
	var swept Swept
	var failures []error
	if s.options.Horizon != nil {
		failures = s.sweepDeparted(ctx, grace, &swept)
	} else {
		// Pools first: without grace the same sweep can then delete their layers.
		for _, pools := range []bool{true, false} {
			failures = append(failures, s.sweep(ctx, grace, pools, &swept)...)
		}
	}
	if err := errors.Join(failures...); err != nil {
		return swept, fmt.Errorf("sweep: %w", err)
	}
	return swept, nil
}

// sweepFailuresMax is the number of failures after which a sweep ends: the cause is then probably
// not in the rows.
const sweepFailuresMax = 100

// sweep deletes the obsolete pools, or all other obsolete entries, and returns the failures.
func (s *Store) sweep(ctx context.Context, grace time.Duration, pools bool, swept *Swept) (failures []error) {
	for pair, err := range s.keys.Scan(ctx, s.obsolete(grace)) {
		if err != nil {
			return append(failures, err)
		}
		if err := s.sweepRow(ctx, pair.Key, pools, swept); err != nil {
			failures = append(failures, err)
			if ctx.Err() != nil || len(failures) == sweepFailuresMax {
				return failures
			}
		}
	}
	return failures
}

// Horizon is an instant in a store that several processes share.
type Horizon interface {
	// Passed reports whether every view that another process has open began after the instant.
	Passed(ctx context.Context) (bool, error)
}

// departed are obsolete entries that a sweep has seen, and the instant after it.
type departed struct {
	mu      sync.Mutex // guards the fields below, and is held during a sweep
	horizon Horizon    // nil: there are none
	rows    [][]byte   // at most departedMax
}

// departedMax bounds the entries that are remembered. Others wait for their turn.
const departedMax = 50_000

// sweepDeparted deletes the obsolete entries that it saw before an instant that has passed, and
// notes those that are there now. A view that began after the entry was made does not name the
// layer; so no clock decides what can be read. The first sweep only notes, unless this process is
// alone.
func (s *Store) sweepDeparted(ctx context.Context, grace time.Duration, swept *Swept) (failures []error) {
	d := &s.departed
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		if d.horizon == nil {
			if err := s.noteDeparted(ctx, grace); err != nil {
				return append(failures, err)
			}
		}
		if len(d.rows) == 0 {
			d.horizon = nil
			return failures
		}
		passed, err := d.horizon.Passed(ctx)
		if err != nil {
			return append(failures, err)
		}
		if !passed {
			swept.WaitingCount += len(d.rows)
			return failures
		}
		before := *swept
		for _, pools := range []bool{true, false} {
			for _, row := range d.rows {
				if err := s.sweepRow(ctx, row, pools, swept); err != nil {
					failures = append(failures, err)
					if ctx.Err() != nil || len(failures) == sweepFailuresMax {
						return failures
					}
				}
			}
		}
		d.horizon, d.rows = nil, nil
		if swept.WaitingCount > before.WaitingCount || len(failures) > 0 {
			return failures // the rest waits for a view of this process, or stays
		}
	}
}

// noteDeparted remembers the obsolete entries, and the instant after they were read. An entry whose
// layer a pool still uses is removed: that pool's entry will be a row of its own, and a view that
// begins before it may read the layer, or a backup copy it, when this instant has passed.
func (s *Store) noteDeparted(ctx context.Context, grace time.Duration) error {
	d := &s.departed
	d.rows = nil
	entries := s.obsolete(grace)
	entries.Limit = departedMax
	var found [][]byte
	note := func() error {
		unused, err := s.dropUsed(ctx, found)
		d.rows, found = append(d.rows, unused...), nil
		return err
	}
	for pair, err := range s.keys.Scan(ctx, entries) {
		if err != nil {
			return err
		}
		if found = append(found, bytes.Clone(pair.Key)); len(found) == kv.ReadCountMax {
			if err := note(); err != nil {
				return err
			}
		}
	}
	if err := note(); err != nil || len(d.rows) == 0 {
		return err
	}
	var err error
	d.horizon, err = s.options.Horizon(ctx)
	return err
}

// dropUsed removes the obsolete entries whose layers a pool uses, and returns the others. There are
// at most [kv.ReadCountMax]. A layer that nobody uses stays so: no pool can begin to use one that
// no manifest names.
func (s *Store) dropUsed(ctx context.Context, rows [][]byte) (unused [][]byte, err error) {
	var set kv.ReadSet
	var asked [][]byte
	for _, row := range rows {
		e, err := segment.DecodeObsolete(row)
		if err != nil || e.Kind == segment.KindPool {
			unused = append(unused, row)
			continue
		}
		users := usersOf(e.ID)
		users.Limit = 1
		set.Ranges, asked = append(set.Ranges, users), append(asked, row)
	}
	if len(asked) == 0 {
		return unused, nil
	}
	found, err := s.keys.Read(ctx, set)
	if err != nil {
		return nil, err
	}
	b := kv.NewBatch()
	for i, page := range found.Pages {
		if len(page.Pairs) == 0 {
			unused = append(unused, asked[i])
		} else {
			b.Delete(asked[i])
		}
	}
	if b.Count() == 0 {
		return unused, nil
	}
	return unused, s.apply(ctx, b)
}

// obsolete are the entries that are at least grace old.
func (s *Store) obsolete(grace time.Duration) kv.ScanOptions {
	end := segment.Obsolete{Time: s.options.Now().Add(-grace + time.Millisecond)}
	return kv.ScanOptions{Start: []byte{tableObsolete}, End: end.Key(tableObsolete)}
}

func (s *Store) sweepRow(ctx context.Context, row []byte, pools bool, swept *Swept) error {
	e, err := segment.DecodeObsolete(row) // an invalid row has the kind of a pool, and so is reported once
	if (e.Kind == segment.KindPool) != pools {
		return nil
	}
	switch {
	case err != nil:
		return s.damage.Corrupt(e.ID, object.ZeroID, "%v", err)
	case pools:
		err = s.removePool(ctx, PoolID(e.ID), row, swept)
	default:
		err = s.removePart(ctx, e, row, swept)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", e.ID, err)
	}
	return nil
}

// removePool deletes a pool's manifest, and adds obsolete entries for its layers.
func (s *Store) removePool(ctx context.Context, pool PoolID, row []byte, swept *Swept) error {
	b := kv.NewBatch()
	b.Delete(row)
	m, raw, err := s.readManifest(ctx, s.keys, pool)
	switch {
	case errors.Is(err, ErrNoPool): // a former sweep did
	case err != nil:
		return err
	default:
		b.Require(manifestKey(pool), raw)
		b.Delete(manifestKey(pool))
		for _, part := range m.parts() {
			s.leave(b, pool, part.kind, part.id)
		}
	}
	return s.removed(ctx, b, &swept.PoolCount)
}

// removePart deletes a layer or auxiliary file, unless it is needed. No pool can begin to use one
// that no manifest names.
func (s *Store) removePart(ctx context.Context, e segment.Obsolete, row []byte, swept *Swept) error {
	b := kv.NewBatch()
	b.Delete(row)
	if used, err := s.isUsed(ctx, e.ID); err != nil {
		return err
	} else if used {
		return s.apply(ctx, b) // the other pool's entry will be a row of its own
	}
	if s.layers.isPinned(e.ID) || !s.removal.TryLock() {
		swept.WaitingCount++
		return nil
	}
	defer s.removal.Unlock()
	if !e.Kind.HasFile() {
		s.deleteRows(b, e)
		return s.removed(ctx, b, &swept.LayerCount)
	}
	if err := s.layers.forget(e.ID); err != nil {
		return err
	}
	// The registration goes last: after a crash, a file without a manifest is found by it.
	if err := s.Files.Delete(ctx, e.Kind.FileName(e.ID)); err != nil && !errors.Is(err, file.ErrNotFound) {
		return err
	}
	b.Delete(registrationKey(e.ID))
	return s.removed(ctx, b, &swept.FileCount)
}

// deleteRows adds the deletion of the rows of a hot layer or a visibility set to b.
func (s *Store) deleteRows(b *kv.Batch, e segment.Obsolete) {
	if e.Kind == segment.KindVisibility {
		deleteVisibility(b, e.ID)
		return
	}
	hot.Delete(b, e.ID)
	if s.copies != nil {
		s.copies.Drop(e.ID)
	}
}

// isUsed reports whether the manifest of a pool names a layer or auxiliary file.
func (s *Store) isUsed(ctx context.Context, id segment.LayerID) (bool, error) {
	user := usersOf(id)
	user.Limit = 1
	for _, err := range s.keys.Scan(ctx, user) {
		return err == nil, err
	}
	return false, nil
}

// removed commits a removal, waits for it, and counts it.
func (s *Store) removed(ctx context.Context, b *kv.Batch, count *int) error {
	err := s.apply(ctx, b)
	if err == nil {
		*count++
	}
	return err
}

// apply commits a batch, and waits for it.
func (s *Store) apply(ctx context.Context, b *kv.Batch) error {
	commit, err := s.keys.Apply(ctx, b)
	if err != nil {
		return err
	}
	return commit.Wait(ctx)
}
