// Package maintain keeps repositories small and fast: it flushes hot layers, merges segments,
// prunes unreachable objects, and removes expired idempotency records and the oldest part of the
// journal.
//
// Start at [Job], which is the maintenance of one repository; [Worker] does due work in the
// background. Everything here may run beside reads and writes, and may be cancelled at any time.
package maintain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"packhorse/odb"
	"packhorse/odb/repack"
	"packhorse/pack/object"
	"packhorse/refs"
)

// Settings are retention times and thresholds of maintenance. Zero fields take their defaults; a
// negative time is none.
type Settings struct {
	// Grace is the time that unreachable objects stay; 14 days.
	Grace time.Duration
	// ReaderGrace is the time that an unused layer stays at least, for copies of the stores; 1 hour.
	ReaderGrace time.Duration
	// KeepHistory is the time for which a repository can be read as it was: what it held then stays,
	// too. Grace.
	KeepHistory time.Duration
	// JournalAge is the time that the journal is kept, at least Grace and KeepHistory; 90 days.
	JournalAge time.Duration
	// HotCount and HotBytes are the size of a pool's hot tier that makes a flush due; 5,000
	// objects, 16 MiB.
	HotCount int
	HotBytes int64
	// SegmentCount is the number of new segments of a pool that makes a merge due; 8.
	SegmentCount int
	// RoundInterval is the interval of rounds over the whole store; 24 hours.
	RoundInterval time.Duration
	// SweepInterval is the interval of deleting obsolete files; 10 minutes.
	SweepInterval time.Duration
	// PruneShare is the least share of unreachable objects for which a pool is rewritten in the
	// background; 0.1.
	PruneShare float64
	// Pause is the rest of background work, as a multiple of the time that it works; 1.
	Pause float64
}

// SetDefaults fills in the zero fields.
func (s *Settings) SetDefaults() {
	s.Grace = cmp.Or(s.Grace, 14*24*time.Hour)
	s.ReaderGrace = cmp.Or(s.ReaderGrace, time.Hour)
	s.JournalAge = cmp.Or(s.JournalAge, 90*24*time.Hour)
	s.Grace, s.ReaderGrace = max(s.Grace, 0), max(s.ReaderGrace, 0)
	s.KeepHistory = max(cmp.Or(s.KeepHistory, s.Grace), 0)
	s.JournalAge = max(s.JournalAge, s.Grace, s.KeepHistory)
	s.HotCount = cmp.Or(s.HotCount, 5000)
	s.HotBytes = cmp.Or(s.HotBytes, 16<<20)
	s.SegmentCount = cmp.Or(s.SegmentCount, 8)
	s.RoundInterval = cmp.Or(s.RoundInterval, 24*time.Hour)
	s.SweepInterval = cmp.Or(s.SweepInterval, 10*time.Minute)
	s.PruneShare = cmp.Or(s.PruneShare, 0.1)
	s.Pause = cmp.Or(s.Pause, 1)
}

// Job is the maintenance of one repository.
type Job struct {
	Objects *odb.Store
	Names   *refs.Store
	Repo    refs.RepoID
	Pool    odb.PoolID
	Now     func() time.Time

	// Grace, KeepHistory and JournalAge are those of [Settings], with KeepHistory that of the
	// organization.
	Grace, KeepHistory, JournalAge time.Duration
	// PruneShare is the least share of unreachable objects for which layers are rewritten.
	PruneShare float64
	// Compact are the options of merging layers.
	Compact repack.CompactOptions
}

// Report counts the work of a job.
type Report struct {
	// PrunedCount objects were unreachable, or there twice.
	PrunedCount int
	Compacted   repack.Compacted
}

// pruneTriesMax bounds the repeated plans of a prune because an object to be pruned has come into
// use.
const pruneTriesMax = 3

// Run does all due work. Errors: [refs.ErrRepositoryNotFound] when the repository has been deleted.
func (j *Job) Run(ctx context.Context) (Report, error) {
	var report Report
	now := j.Now()
	// First of all: who finds the floor below a moment after it has opened the objects, reads them as
	// they were before.
	floor, err := j.Names.RaiseFloor(ctx, j.Repo, now.Add(-j.KeepHistory))
	if err != nil {
		return report, err
	}
	if _, err := j.Names.TrimJournal(ctx, j.Repo, now.Add(-max(j.JournalAge, j.Grace, j.KeepHistory))); err != nil {
		return report, fmt.Errorf("trim journal: %w", err)
	}
	for range pruneTriesMax {
		count, err := j.prune(ctx, now.Add(-j.Grace), floor)
		if errors.Is(err, odb.ErrNeeded) {
			continue // what else is unreachable waits for the next time
		}
		if err != nil {
			return report, fmt.Errorf("prune unreachable objects: %w", err)
		}
		report.PrunedCount = count
		break
	}
	report.Compacted, err = repack.Compact(ctx, j.Objects, j.Pool, j.Compact)
	return report, err
}

// prune removes what nothing has reached since a time, nor in the readable history.
func (j *Job) prune(ctx context.Context, since time.Time, floor refs.HistoryFloor) (count int, err error) {
	var state refs.Version
	p, err := repack.PlanPrune(ctx, j.Objects, j.Pool, repack.PruneOptions{
		RepackOptions: j.Compact.RepackOptions,
		ShareMin:      j.PruneShare,
		Roots: func(ctx context.Context) (tips, old []object.ID, err error) {
			if tips, state, err = j.tips(ctx); err == nil {
				old, err = j.old(ctx, since, floor)
			}
			return tips, old, err
		},
	})
	if p == nil || err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for range 2 { // changes during the plan, and during a first check of those
		if err := p.Look(ctx); err != nil {
			return 0, err
		}
	}
	change := refs.Change{Cause: "maintenance"}
	_, err = j.Names.Update(ctx, j.Repo, change, func(ctx context.Context, tx *refs.Tx) error {
		// The journal tells what has moved since only if the store has not lost the state of the plan.
		if follows, err := tx.Follows(ctx, state); err != nil {
			return err
		} else if !follows {
			return fmt.Errorf("refs went back: %w", odb.ErrNeeded)
		}
		moved, err := j.moved(ctx, state.Sequence)
		if err != nil {
			return err
		}
		return p.Stage(ctx, tx.Batch(), moved)
	})
	if err != nil {
		return 0, err
	}
	p.Settled(ctx)
	return p.ObjectCount(), nil
}

// tips returns the targets of the refs of all namespaces, and the state in which they were read.
func (j *Job) tips(ctx context.Context) (tips []object.ID, state refs.Version, err error) {
	names, err := j.Names.Snapshot(ctx, j.Repo)
	if err != nil {
		return nil, state, err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	for ref, err := range names.All(ctx, "refs/") {
		if err != nil {
			return nil, state, fmt.Errorf("read refs: %w", err)
		}
		tips = append(tips, ref.ID)
	}
	return tips, names.Version(), nil
}

// old returns the values that refs have lost since a time, or in the readable history.
func (j *Job) old(ctx context.Context, since time.Time, floor refs.HistoryFloor) ([]object.ID, error) {
	var old []object.ID
	err := j.events(ctx, 0, func(entry *refs.Entry) {
		if !entry.Before.IsZero() && (entry.Time.After(since) || entry.Sequence > floor.Sequence) {
			old = append(old, entry.Before)
		}
	})
	return old, err
}

// moved returns what refs have been pointed at since a sequence.
func (j *Job) moved(ctx context.Context, sequence uint64) ([]object.ID, error) {
	var moved []object.ID
	err := j.events(ctx, sequence, func(entry *refs.Entry) {
		if !entry.After.IsZero() {
			moved = append(moved, entry.After)
		}
	})
	return moved, err
}

// events calls visit with the journal after a sequence, as far as it has not been trimmed.
func (j *Job) events(ctx context.Context, after uint64, visit func(*refs.Entry)) error {
	for {
		page, err := j.Names.Events(ctx, j.Repo, after, refs.EventsMax)
		if trimmed, ok := errors.AsType[*refs.TrimmedError](err); ok && trimmed.Oldest > after+1 {
			after = trimmed.Oldest - 1
			continue
		}
		if err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		for i := range page.Entries {
			visit(&page.Entries[i])
		}
		if !page.More {
			return nil
		}
		after = page.Next
	}
}
